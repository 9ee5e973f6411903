-- Store the progress of a job that its consumer works on.
-- Guarantee: only the consumer that has the token of the lease, and whose lease still holds the job, can.
-- KEYS:
--   1 lease
--   2 leases
--   3 tracking
-- ARGV:
--   1 token
--   2 slot                 of the job in the lease
--   3 job_id               of the job
--   4 progress             a number
--   5 note
-- Returns: "ok"; "cancel" when somebody asked to cancel the job; "lost"
-- Repeat: finds the same progress and note, and leaves their time. After the job has left the lease it stores nothing.

--- @include clock, lease, oom_guard
oom_guard(leases)
local held = read_lease(lease)
redis.call('HLEN', tracking)
if not held or held.token ~= token or redis.call('HEXISTS', lease, slot) == 0 then
  return 'lost'
end
local known = string.gsub(redis.call('HGET', tracking, 'p:' .. job_id) or '', '^([^\31]*\31)[^\31]*', '%1')
if known ~= progress .. '\31\31' .. note then
  local ms = string.format('%.0f', math.floor(clock_us() / 1000))
  redis.call('HSET', tracking, 'p:' .. job_id, progress .. '\31' .. ms .. '\31' .. note)
end
return redis.call('HEXISTS', tracking, 'x:' .. job_id) == 1 and 'cancel' or 'ok'
