-- Remember what a run returned, or ask what it has returned. Claims of that run exclude these messages.
-- Guarantee: the run is remembered for at least `life_ms` after the last call that added to it.
-- KEYS:
--   1 leases
--   2 run                  what the run has returned
-- ARGV:
--   1 life_ms              lifetime of the run's record; 0: only ask
--   2... members           message ids, or names of anything else
-- Returns: for each member 1 if it was remembered before, else 0
-- Repeat: adds nothing more; its answer finds every member remembered.

--- @include oom_guard
local life, remembered = tonumber(life_ms), {}
oom_guard(leases)
for first = members_at, #ARGV, 1000 do
  local last = math.min(first + 999, #ARGV)
  local found = redis.call('SMISMEMBER', run, unpack(ARGV, first, last))
  for i = 1, #found do
    remembered[#remembered + 1] = found[i]
  end
end
if life > 0 then
  for first = members_at, #ARGV, 1000 do
    redis.call('SADD', run, unpack(ARGV, first, math.min(first + 999, #ARGV)))
  end
  redis.call('PEXPIRE', run, life)
end
return remembered
