-- Keep the record of a staged write: which stages are to be published under its id, and whether that is done.
-- Guarantee: publishes the stages of the first opening and no others, however often a write of that id is run.
-- KEYS:
--   1 leases
--   2 write                a field per stage that is still to be published, with its description, and a field of its
--                        own
--   3... stages            in the order of their names
-- ARGV:
--   1 verb                 "look"; "open": these stages are to be published, unless the write is known; "finish": these
--                        are published; "drop": these are not needed, unless the write lists them; "cancel": these are
--                        not needed even then
--   2 life_ms              lifetime of the record from now on, and of the stages that it lists
--   3... described         per stage: its name, its description
-- Returns: {1 when the write is known, stages that are left, name, description, ...}: none is left when the write is
--   done; with a pair per stage that is left of those given, or of all for "open". {-1, number} when a stage that was
--   to be opened is gone; then nothing was opened
-- Repeat: opens once; a stage that is finished or dropped stays so.

--- @include oom_guard
local OWN = '' -- a field that is always there: a record without stages belongs to a write that is done
oom_guard(leases)
local known = redis.call('HGET', write, OWN)
for i = stages_at, #KEYS do
  if redis.call('LLEN', KEYS[i]) == 0 and verb == 'open' and not known then
    return {-1, i - stages_at + 1}
  end
end
local function name_at(i)
  return ARGV[described_at + 2 * (i - stages_at)]
end

if verb == 'open' and not known then
  for i = stages_at, #KEYS do
    redis.call('PEXPIRE', KEYS[i], life_ms)
  end
  redis.call('UNLINK', write) -- an opening that was stopped before its end
  for first = described_at, #ARGV, 2000 do
    redis.call('HSET', write, unpack(ARGV, first, math.min(first + 1999, #ARGV)))
  end
  redis.call('HSET', write, OWN, '1') -- last: from here on the list is complete
  redis.call('PEXPIRE', write, life_ms)
elseif verb ~= 'open' and verb ~= 'look' then
  for i = stages_at, #KEYS do
    local name = name_at(i)
    if verb ~= 'drop' or not redis.call('HGET', write, name) then
      redis.call('HDEL', write, name)
      redis.call('UNLINK', KEYS[i])
    end
  end
  if verb == 'finish' and known then
    redis.call('PEXPIRE', write, life_ms)
  end
end

local is_known = redis.call('HEXISTS', write, OWN)
local reply = {is_known, redis.call('HLEN', write) - is_known}
local pairs_left = verb == 'open' and redis.call('HGETALL', write) or {}
for i = stages_at, verb == 'open' and 0 or #KEYS do
  local name = name_at(i)
  pairs_left[#pairs_left + 1], pairs_left[#pairs_left + 2] = name, redis.call('HGET', write, name)
end
for i = 1, #pairs_left, 2 do
  if pairs_left[i] ~= OWN and pairs_left[i + 1] then
    reply[#reply + 1], reply[#reply + 2] = pairs_left[i], pairs_left[i + 1]
  end
end
return reply
