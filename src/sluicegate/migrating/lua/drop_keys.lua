-- Drop hashes of another library whose content is in its new place.
-- Guarantee: a hash is dropped only if a field of it has the expected value.
-- KEYS:
--   1... hashes
-- ARGV:
--   1 field
--   2... expected          the value of that field, per key
-- Returns: how many were dropped
-- Repeat: finds none of them.

local count = 0
for i = hashes_at, #KEYS do
  local same = redis.call('TYPE', KEYS[i]).ok == 'hash'
    and (redis.call('HGET', KEYS[i], field) or '') == ARGV[expected_at + i - hashes_at]
  count = count + (same and redis.call('UNLINK', KEYS[i]) or 0)
end
return count
