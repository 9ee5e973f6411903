-- Pause or resume: while a queue is paused, claims take no new messages.
-- Guarantee: acts only on the change count that a first call told, so that a call executed late undoes nothing that was done since.
-- KEYS:
--   1 leases
--   2 counters
--   3 wakeup
-- ARGV:
--   1 wanted         1 to pause, 0 to resume
--   2 changes        how often the queue was paused or resumed so far, "" to be told it
-- Returns: {changes, 1 when paused}
-- Repeat: finds another count, and changes nothing.

--- @include oom_guard
--- @include wakeup
--- @include count_up
--- @include numbers
local counters, wanted = KEYS[2], ARGV[1]
oom_guard(KEYS[1])
local tokens = redis.call('LLEN', KEYS[3])
local found = redis.call('HMGET', counters, 'pauses', 'paused')
local changes, paused = to_integer(found[1]), found[2] and '1' or '0'
if ARGV[2] ~= '' and tonumber(ARGV[2]) == changes and paused ~= wanted then
  changes, paused = count_up(counters, 'pauses', 1), wanted
  if wanted == '1' then
    redis.call('HSET', counters, 'paused', '1')
  else
    redis.call('HDEL', counters, 'paused')
    wake_consumer(KEYS[3], tokens)
  end
end
return {changes, tonumber(paused)}
