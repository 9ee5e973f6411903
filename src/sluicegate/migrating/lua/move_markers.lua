-- Hold deduplication keys of another library's queue, for as long as they are held there.
-- Guarantee: a key that a message of this queue holds stays with it.
-- KEYS:
--   1... markers
-- ARGV:
--   1 owner                what holds them: the queue that they come from
--   2... lives             of each, in ms
-- Returns: how many are held by this owner now
-- Repeat: finds them held.

local count = 0
for i = markers_at, #KEYS do
  redis.call('SET', KEYS[i], owner, 'NX', 'PX', ARGV[lives_at + i - markers_at])
  count = count + (redis.call('GET', KEYS[i]) == owner and 1 or 0)
end
return count
