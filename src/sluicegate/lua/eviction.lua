-- Report what the server evicts when it is full.
-- Guarantee: reads only.
-- KEYS:
--   1 counters             names the server of the queue; it is not read
-- ARGV:
-- Returns: the policy, such as "noeviction"; nil where the user has no right to INFO, or the server does not report it
-- Repeat: reads again.

local info = redis.pcall('INFO', 'memory')
return type(info) == 'string' and string.match(info, 'maxmemory_policy:([%w-]+)') or false
