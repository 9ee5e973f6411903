-- Set values of a taken page aside that cannot be moved: they are left in a list beside their source.
-- Guarantee: a value is in one of the two lists at any moment.
-- KEYS:
--   1 page                 the values that were taken, and the mark of the page
--   2 aside                values that were left, the oldest rightmost
-- ARGV:
--   1 number               of the page
--   2... values
-- Returns: how many were set aside
-- Repeat: finds none of them in the page.

redis.call('PERSIST', page) -- allowed in a full Redis, and so is all that follows
redis.call('LLEN', aside)
local found, count = string.match(redis.call('LINDEX', page, -1) or '', '^(%d+) '), 0
for i = values_at, found == number and #ARGV or 0 do
  if redis.call('LREM', page, -1, ARGV[i]) == 1 then
    redis.call('LPUSH', aside, ARGV[i])
    count = count + 1
  end
end
return count
