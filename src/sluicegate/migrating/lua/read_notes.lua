-- Read what redis-message-queue notes about claimed values.
-- Guarantee: reads only.
-- KEYS:
--   1 deadlines            a sorted set: value and deadline in ms
--   2 counts               a hash: value and deliveries
-- ARGV:
--   1... values
-- Returns: {time in ms, deadline or "" and deliveries or "" of each value...}
-- Repeat: reads again.

--- @include clock
local reply = {string.format('%.0f', math.floor(clock_us() / 1000))}
for i = values_at, #ARGV do
  reply[#reply + 1] = redis.call('ZSCORE', deadlines, ARGV[i]) or ''
  reply[#reply + 1] = redis.call('HGET', counts, ARGV[i]) or ''
end
return reply
