-- Keep the record of a staged write: which stages are published under its id, and that it is done.
-- Guarantee: the stages of the first opening are published and no others, however often a write of that id is run.
-- KEYS:
--   1 leases
--   2 write          per stage that is still to be published what is told of it, and a field of its own
--   3... stages      in the order of their names
-- ARGV:
--   1 verb           "look"; "open": these stages are to be published, unless the write is known; "finish": these are published;
--                    "drop": these are not wanted, unless the write lists them; "cancel": not wanted even so
--   2 life_ms        of the record from now on, and of the stages that it lists
--   3... told        per stage: its name, what is told of it
-- Returns: {1 when the write is known, stages that are left, name, told, ...}: none is left when the write is done; with a pair per stage
--   that is left of those given, or of all for "open"; {-1, number} when a stage that was to be opened is gone, and then nothing was opened
-- Repeat: opens once; what is finished or dropped stays so.

--- @include oom_guard
local OWN = '' -- a field that is always there: a record without stages is of a write that is done
local write, verb, life = KEYS[2], ARGV[1], ARGV[2]
oom_guard(KEYS[1])
local known = redis.call('HGET', write, OWN)
for i = 3, #KEYS do
  if redis.call('LLEN', KEYS[i]) == 0 and verb == 'open' and not known then
    return {-1, i - 2}
  end
end

if verb == 'open' and not known then
  for i = 3, #KEYS do
    redis.call('PEXPIRE', KEYS[i], life)
  end
  redis.call('UNLINK', write) -- an opening that was stopped before its end
  for first = 3, #ARGV, 2000 do
    redis.call('HSET', write, unpack(ARGV, first, math.min(first + 1999, #ARGV)))
  end
  redis.call('HSET', write, OWN, '1') -- last: from here on the list is whole
  redis.call('PEXPIRE', write, life)
elseif verb ~= 'open' and verb ~= 'look' then
  for i = 3, #KEYS do
    local name = ARGV[2 * i - 3]
    if verb ~= 'drop' or not redis.call('HGET', write, name) then
      redis.call('HDEL', write, name)
      redis.call('UNLINK', KEYS[i])
    end
  end
  if verb == 'finish' and known then
    redis.call('PEXPIRE', write, life)
  end
end

known = redis.call('HEXISTS', write, OWN)
local reply, pairs_left = {known, redis.call('HLEN', write) - known}, verb == 'open' and redis.call('HGETALL', write) or {}
for i = 3, verb == 'open' and 0 or #KEYS do
  local name = ARGV[2 * i - 3]
  pairs_left[#pairs_left + 1], pairs_left[#pairs_left + 2] = name, redis.call('HGET', write, name)
end
for i = 1, #pairs_left, 2 do
  if pairs_left[i] ~= OWN and pairs_left[i + 1] then
    reply[#reply + 1], reply[#reply + 2] = pairs_left[i], pairs_left[i + 1]
  end
end
return reply
