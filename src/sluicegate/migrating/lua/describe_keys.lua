-- Describe keys of another library.
-- Guarantee: reads only.
-- KEYS:
--   1... keys
-- ARGV:
-- Returns: {time in ms, a list per key}: its type, its elements or bytes, its time to live in ms
-- Repeat: reads again.

--- @include clock
local SIZES = {list = 'LLEN', stream = 'XLEN', zset = 'ZCARD', hash = 'HLEN', string = 'STRLEN', set = 'SCARD'}
local reply = {string.format('%.0f', math.floor(clock_us() / 1000))}
for i = keys_at, #KEYS do
  local kind = redis.call('TYPE', KEYS[i]).ok
  local size = SIZES[kind] and redis.call(SIZES[kind], KEYS[i]) or 0
  reply[#reply + 1] = {kind, size, redis.call('PTTL', KEYS[i])}
end
return reply
