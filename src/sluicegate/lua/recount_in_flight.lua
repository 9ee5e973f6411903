-- Recount the messages in flight, lease by lease in the order of the hashes of their names, while others claim and
-- settle.
-- Guarantee: only one recount runs at a time, the one that began last.
-- KEYS:
--   1 leases
--   2 counters
--   3... lease             the hashes of the leases in `names`
-- ARGV:
--   1 part                 "begin", "count" or "end"
--   2 nonce                of this recount
--   3 upto                 count: the greatest hash of a name counted with this call
--   4... names             count: the members in `leases`
-- Returns: {"", leases whose own count was corrected}; end: {in flight as counted, its difference from the gauge};
--   {"over", 0} when another recount began, or this one has ended
-- Repeat: a part that is executed late is over.

--- @include clock, count_up, lease, lease_blocks, lease_fields, numbers, oom_guard, recount
oom_guard(leases)
local recount, corrected = redis.call('HGET', counters, 'recount'), 0
for i = lease_at, #KEYS do
  redis.call('HLEN', KEYS[i])
end
if part == 'begin' then
  redis.call('HSET', counters, 'recounted', 0, 'recount', string.format('%s %.0f ', nonce, clock_us()))
  return {'', 0}
elseif not recount or string.sub(recount, 1, #nonce + 1) ~= nonce .. ' ' then
  return {'over', 0}
end

local function count(key, name)
  local known = read_lease(key)
  local token = known and known.token == '-' and redis.call('HGET', key, 'fenced') or known and known.token
  if known and not is_counted(recount, name, token) then
    local held = count_held_slots(key, blocks_of(key, known))
    count_up(counters, 'recounted', held)
    if not known.damaged and known.held ~= held then
      known.held = math.min(held, known.size)
      redis.call('HSET', key, 'm', pack_lease(known))
      corrected = corrected + 1
    end
  end
end

if part == 'count' then
  for i = names_at, #ARGV do
    count(KEYS[lease_at + i - names_at], ARGV[i])
  end
  redis.call('HSET', counters, 'recount', string.match(recount, '^%S+ %d+ ') .. upto)
  return {'', corrected}
end
local counted = to_integer(redis.call('HGET', counters, 'recounted'))
local before = redis.call('HGET', counters, 'in_flight')
redis.call('HSET', counters, 'in_flight', string.format('%.0f', counted))
redis.call('HDEL', counters, 'recount', 'recounted')
return {string.format('%.0f', counted), counted - to_integer(before)}
