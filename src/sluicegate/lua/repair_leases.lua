-- Find leases, and repair those that lack a hash, a deadline or slots.
-- Guarantee: drops only what holds no message, so that it may run beside any other call.
-- KEYS:
--   1 leases
--   2... lease             the hashes of the leases in `names`
-- ARGV:
--   1 part                 "find": names leases by their hashes; "names": by their deadlines; "check": repairs leases
--   2 from                 find: a cursor; names: deadline of the last lease that was named
--   3 max_values           to look at
--   4 text                 find: pattern of the hashes' keys; names: the lease that was named last
--   5... names             check: the members in `leases`
-- Returns: {place of the next call, "" at the end; leases repaired; names, or keys of leases, or leases that must be
--   reaped...}
-- Repeat: repairs what there is to repair by then.

--- @include clock, lease, lease_fields, lease_page, oom_guard
local limit, repaired = tonumber(max_values), 0
oom_guard(leases)
for i = lease_at, #KEYS do
  redis.call('HLEN', KEYS[i])
end

local function check(key, name, ms, reply)
  local known, deadline = read_lease(key), tonumber(redis.call('ZSCORE', leases, name))
  if not known then
    repaired = repaired + redis.call('ZREM', leases, name)
  elseif known.damaged then
    reply[#reply + 1] = name
  elseif #names_in(key) == 0 then
    redis.call('UNLINK', key)
    redis.call('ZREM', leases, name)
    repaired = repaired + 1
  elseif not deadline or deadline > ms + known.span + 1000 then -- it would never be reaped, or not in time
    redis.call('ZADD', leases, ms + (deadline and known.span or 0), name)
    repaired = repaired + 1
  end
end

if part == 'find' then
  local page = redis.pcall('SCAN', from, 'MATCH', text, 'COUNT', limit)
  -- A user without the right to SCAN does without this part.
  return page.err and {'', 0} or {page[1] == '0' and '' or page[1], 0, unpack(page[2])}
elseif part == 'names' then
  local known = from ~= ''
  local names, score = lease_page(leases, '+inf', limit, known and from or nil, known and text or nil)
  return {score, 0, unpack(names)}
end
local ms, reply = math.floor(clock_us() / 1000), {'', 0}
for i = names_at, #ARGV do
  check(KEYS[lease_at + i - names_at], ARGV[i], ms, reply)
end
reply[2] = repaired
return reply
