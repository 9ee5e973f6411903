-- Remember which entries of another library's stream cannot be moved and stay there.
-- Guarantee: an entry that was left is never taken for one that was moved.
-- KEYS:
--   1 left                 their ids
-- ARGV:
--   1 keep_ms              how long they are remembered from now on
--   2... ids               to add
-- Returns: {all ids}
-- Repeat: adds none.

if #ARGV >= ids_at then
  for first = ids_at, #ARGV, 1000 do
    redis.call('SADD', left, unpack(ARGV, first, math.min(first + 999, #ARGV)))
  end
  redis.call('PEXPIRE', left, keep_ms)
end
return redis.call('SMEMBERS', left)
