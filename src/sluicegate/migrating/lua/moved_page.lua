-- Read which page of a source entered a queue or stream last.
-- Guarantee: reads only.
-- KEYS:
--   1 moved                by source, the last page that entered
-- ARGV:
--   1 origin               the source
-- Returns: the page, nil for none
-- Repeat: reads again.

return redis.call('HGET', moved, origin)
