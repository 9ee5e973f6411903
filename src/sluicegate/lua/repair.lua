-- Put right what no longer agrees after keys or values were lost or overwritten from outside, one bounded part of it.
-- Guarantee: moves and counts only what the structures hold, so that it may run beside anything else; a message is kept before it is dropped.
-- KEYS:
--   1 leases
--   2 counters
--   3 wakeup
--   4 pending
--   5 returned
--   6 set_aside      values of kinds that only a newer version knows
--   7 dead
--   8 dead_records
--   9... lease        the hashes of the leases that `names` names
-- ARGV:
--   1 part           "counters": what is no number counts anew; "aside": what can be read by now comes back; "find": names leases by their
--                    hashes; "names": by their deadlines; "check": leases without a hash, a deadline or slots; "letters": letters without a
--                    record; "records": records without a letter; "begin", "count" and "end": recount what is in flight
--   2 nonce          of this repair
--   3 from           aside and letters: values passed over; find and records: a cursor; names: deadline of the last lease that was named;
--                    count: the greatest hash of a name counted with this call
--   4 most           values looked at
--   5 text           find: pattern of the hashes' keys; names: the lease that was named last
--   6... names       check and count: the members in `leases`
-- Returns: {what follows: next cursor or place, "" at the end; things mended; names, or keys of leases, or leases that must be reaped ...};
--   end: {in flight as counted, by how much that differs from the gauge}; {"over", 0} when another repair recounts, or none any more
-- Repeat: mends what there is to mend by then; of a recount, a part that is executed late is over.

--- @include clock
--- @include oom_guard
--- @include wakeup
--- @include count_up
--- @include numbers
--- @include entry
--- @include lease
--- @include ranges
--- @include slots
--- @include newest_sequence
--- @include lease_page
--- @include recount
local leases, counters, dead, records = KEYS[1], KEYS[2], KEYS[7], KEYS[8]
local part, nonce, from, most = ARGV[1], ARGV[2], ARGV[3], tonumber(ARGV[4])
oom_guard(leases)
local tokens = redis.call('LLEN', KEYS[3])
redis.call('LLEN', KEYS[4])
redis.call('ZCARD', KEYS[5])
redis.call('ZCARD', KEYS[6])
redis.call('ZCARD', dead)
redis.call('HLEN', records)
for i = 9, #KEYS do
  redis.call('HLEN', KEYS[i])
end
local recount = redis.call('HGET', counters, 'recount')
local mine = recount and string.sub(recount, 1, #nonce + 1) == nonce .. ' '
local us = clock_us()
local ms, mended = math.floor(us / 1000), 0

local function reset_bad_counters()
  local found = redis.call('HGETALL', counters)
  for i = 1, #found, 2 do
    local number = string.format('%.0f', to_integer(found[i + 1]))
    if found[i] ~= 'paused' and found[i] ~= 'recount' and found[i + 1] ~= number then
      redis.call('HSET', counters, found[i], number)
      mended = mended + 1
    end
  end
  local last = newest_sequence_in(KEYS[4], KEYS[5])
  if last > to_integer(redis.call('HGET', counters, 'published')) then -- else the next messages would go before those that wait
    redis.call('HSET', counters, 'published', string.format('%.0f', last))
    mended = mended + 1
  end
  return {'', mended}
end

local function requeue_readable(from)
  local values, kept = redis.call('ZRANGE', KEYS[6], from, from + most - 1), 0
  for i = 1, #values do
    if is_entry(values[i]) then
      redis.call('ZADD', KEYS[5], sequence_of(values[i]), values[i])
      redis.call('ZREM', KEYS[6], values[i])
      mended = mended + 1
    else
      kept = kept + 1
    end
  end
  if mended > 0 then
    wake_consumer(KEYS[3], tokens)
  end
  local left = redis.call('ZCARD', KEYS[6])
  if to_integer(redis.call('HGET', counters, 'set_aside')) ~= left then
    redis.call('HSET', counters, 'set_aside', left)
  end
  return {#values < most and '' or string.format('%.0f', from + kept), mended}
end

local function check(key, name, reply)
  local lease, deadline = read_lease(key), tonumber(redis.call('ZSCORE', leases, name))
  if not lease then
    mended = mended + redis.call('ZREM', leases, name)
  elseif lease.damaged then
    reply[#reply + 1] = name
  elseif #names_in(key) == 0 then
    redis.call('UNLINK', key)
    redis.call('ZREM', leases, name)
    mended = mended + 1
  elseif not deadline or deadline > ms + lease.span + 1000 then -- nothing would bring it back, or not in time
    redis.call('ZADD', leases, ms + (deadline and lease.span or 0), name)
    mended = mended + 1
  end
end

local function drop_dead_without_record(from)
  local ids, kept = redis.call('ZRANGE', dead, from, from + most - 1), 0
  for i = 1, #ids do
    if redis.call('HEXISTS', records, ids[i]) == 0 then
      mended = mended + redis.call('ZREM', dead, ids[i])
    else
      kept = kept + 1
    end
  end
  return {#ids < most and '' or string.format('%.0f', from + kept), mended}
end

local function index_dead_records()
  local page = redis.pcall('HSCAN', records, from, 'COUNT', most)
  if page.err then
    return {'', 0} -- as for SCAN
  end
  for i = 1, #page[2], 2 do
    local buried = string.match(page[2][i + 1], '^(%d+)\31')
    mended = mended + redis.call('ZADD', dead, 'NX', to_integer(buried) > 0 and to_integer(buried) or ms, page[2][i])
  end
  return {page[1] == '0' and '' or page[1], mended}
end

local function count_leases()
  for i = 6, #ARGV do
    local key = KEYS[i + 3]
    local lease = read_lease(key)
    local token = lease and lease.token == '-' and redis.call('HGET', key, 'fenced') or lease and lease.token
    if lease and not is_counted(recount, ARGV[i], token) then
      local held = slots_in(key)
      count_up(counters, 'recounted', held)
      if not lease.damaged and lease.held ~= held then
        lease.held = math.min(held, lease.size)
        redis.call('HSET', key, 'm', pack_lease(lease))
        mended = mended + 1
      end
    end
  end
  redis.call('HSET', counters, 'recount', string.match(recount, '^%S+ %d+ ') .. from)
  return {'', mended}
end

if part == 'counters' then
  return reset_bad_counters()
elseif part == 'aside' then
  return requeue_readable(tonumber(from))
elseif part == 'find' then
  local page = redis.pcall('SCAN', from, 'MATCH', ARGV[5], 'COUNT', most)
  return page.err and {'', 0} or {page[1] == '0' and '' or page[1], 0, unpack(page[2])} -- a user without the right to SCAN goes without
elseif part == 'names' then
  local names, score = lease_page(leases, '+inf', most, from ~= '' and from or nil, from ~= '' and ARGV[5] or nil)
  return {score, 0, unpack(names)}
elseif part == 'check' then
  local reply = {'', 0}
  for i = 6, #ARGV do
    check(KEYS[i + 3], ARGV[i], reply)
  end
  reply[2] = mended
  return reply
elseif part == 'letters' then
  return drop_dead_without_record(tonumber(from))
elseif part == 'records' then
  return index_dead_records()
elseif part == 'begin' then
  redis.call('HSET', counters, 'recounted', 0, 'recount', string.format('%s %.0f ', nonce, us))
  return {'', 0}
elseif not mine then
  return {'over', 0}
elseif part == 'count' then
  return count_leases()
end
local counted = to_integer(redis.call('HGET', counters, 'recounted'))
local before = redis.call('HGET', counters, 'in_flight')
redis.call('HSET', counters, 'in_flight', string.format('%.0f', counted))
redis.call('HDEL', counters, 'recount', 'recounted')
return {string.format('%.0f', counted), counted - to_integer(before)}
