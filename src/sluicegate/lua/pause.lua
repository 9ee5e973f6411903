-- Pause or resume a queue: while it is paused, claims take no new messages.
-- Guarantee: acts only on the change count that a first call reported, so that a late call undoes no later change.
-- KEYS:
--   1 leases
--   2 counters
--   3 wakeup
-- ARGV:
--   1 wanted               1 to pause, 0 to resume
--   2 changes              how often the queue was paused or resumed so far, "" to ask for it
-- Returns: {changes, 1 when paused}
-- Repeat: finds another count, and changes nothing.

--- @include count_up, numbers, oom_guard, wakeup
oom_guard(leases)
local tokens = redis.call('LLEN', wakeup)
local found = redis.call('HMGET', counters, 'pauses', 'paused')
local count, paused = to_integer(found[1]), found[2] and '1' or '0'
if changes ~= '' and tonumber(changes) == count and paused ~= wanted then
  count, paused = count_up(counters, 'pauses', 1), wanted
  if wanted == '1' then
    redis.call('HSET', counters, 'paused', '1')
  else
    redis.call('HDEL', counters, 'paused')
    wake_consumer(wakeup, tokens)
  end
end
return {count, tonumber(paused)}
