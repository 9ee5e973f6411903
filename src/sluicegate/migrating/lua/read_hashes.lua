-- Read hashes of another library.
-- Guarantee: reads only.
-- KEYS:
--   1... hashes
-- ARGV:
-- Returns: a list per key: its time to live in ms, and its fields and values in turn; none of a key that is no hash
-- Repeat: reads again.

local reply = {}
for i = hashes_at, #KEYS do
  local found = redis.call('TYPE', KEYS[i]).ok == 'hash' and redis.call('HGETALL', KEYS[i]) or {}
  table.insert(found, 1, redis.call('PTTL', KEYS[i]))
  reply[i] = found
end
return reply
