-- Note what a run gives back, or ask what it has noted; its claims pass these messages by.
-- Guarantee: what was noted stays noted for `life_ms` from the last note at least.
-- KEYS:
--   1 leases
--   2 run            what the run has noted
-- ARGV:
--   1 life_ms        of the notes; 0: only ask
--   2... members     message ids, or names of anything else
-- Returns: for each member 1 if it was noted before, else 0
-- Repeat: notes nothing more; its answer finds everything noted.

--- @include oom_guard
local life, noted = tonumber(ARGV[1]), {}
oom_guard(KEYS[1])
for first = 2, #ARGV, 1000 do
  local last = math.min(first + 999, #ARGV)
  local found = redis.call('SMISMEMBER', KEYS[2], unpack(ARGV, first, last))
  for i = 1, #found do
    noted[#noted + 1] = found[i]
  end
end
if life > 0 then
  for first = 2, #ARGV, 1000 do
    redis.call('SADD', KEYS[2], unpack(ARGV, first, math.min(first + 999, #ARGV)))
  end
  redis.call('PEXPIRE', KEYS[2], life)
end
return noted
