-- Tell what the server evicts when it is full.
-- Guarantee: reads only.
-- KEYS:
--   1 counters       leads to the queue's server; it is not read
-- ARGV:
-- Returns: the policy, such as "noeviction"; nil where the user has no right to INFO, or the server does not tell
-- Repeat: reads again.

local _ = KEYS[1]
local info = redis.pcall('INFO', 'memory')
return type(info) == 'string' and string.match(info, 'maxmemory_policy:([%w-]+)') or false
