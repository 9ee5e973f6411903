-- Find keys by a pattern, on the server that has a key.
-- Guarantee: reads only, in bounded steps.
-- KEYS:
--   1 near                 a key of that server
-- ARGV:
--   1 cursor               "0" for the first step
--   2 pattern
--   3 count                keys to look at
-- Returns: {cursor of the next step, "0" after the last; names...}
-- Repeat: reads again.

redis.call('EXISTS', near)
local found = redis.call('SCAN', cursor, 'MATCH', pattern, 'COUNT', count)
table.insert(found[2], 1, found[1])
return found[2]
