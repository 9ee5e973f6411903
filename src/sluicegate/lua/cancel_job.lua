-- Ask the consumer that works on a job to stop.
-- Guarantee: marks only a job that runs now. The first request's time stays.
-- KEYS:
--   1 tracking
--   2 leases
-- ARGV:
--   1 job_id               of the job
-- Returns: the job's status: waiting, delayed, running, completed, failed or cancelled; "" for an unknown job
-- Repeat: finds the request, or a job that runs no more, and writes nothing.

--- @include clock, oom_guard
oom_guard(leases)
local state, enqueued = unpack(redis.call('HMGET', tracking, 's:' .. job_id, 'j:' .. job_id))
local status = state and string.match(state, '^%l+') or enqueued and 'waiting' or ''
if status == 'running' and redis.call('HEXISTS', tracking, 'x:' .. job_id) == 0 then
  redis.call('HSET', tracking, 'x:' .. job_id, string.format('%.0f', math.floor(clock_us() / 1000)))
end
return status
