-- Report a queue's totals.
-- Guarantee: reads only.
-- KEYS:
--   1 counters
-- ARGV:
-- Returns: {name, total, name, total, ...}
-- Repeat: reads again.

return redis.call('HGETALL', counters)
