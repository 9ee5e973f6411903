-- Set how long, and how many of, the records of ended jobs are kept.
-- Guarantee: applies to jobs that end from now on; records that are kept already keep their time.
-- KEYS:
--   1 tracking
--   2 leases
-- ARGV:
--   1 ttl_ms               lifetime of the record of an ended job
--   2 max_ended            maximum records of ended jobs
-- Returns: "ok"
-- Repeat: finds it set.

--- @include oom_guard
oom_guard(leases)
local found = redis.call('HMGET', tracking, 'ttl_ms', 'cap')
if found[1] ~= ttl_ms or found[2] ~= max_ended then
  redis.call('HSET', tracking, 'ttl_ms', ttl_ms, 'cap', max_ended)
end
return 'ok'
