-- Take the messages of an expired lease back, in bounded steps.
-- Guarantee: the deadline is judged here and now; the lease is fenced before the first message moves, so its holder can no longer settle.
-- KEYS:
--   1 lease
--   2 leases
--   3 closed
--   4 returned
--   5 dead
--   6 dead_records
--   7 counters
--   8 bell
--   9... marker      of a message that must be buried and frees it, once an answer asked for it
-- ARGV:
--   1 name           the lease's member in `leases`
--   2 step           most messages to move
--   3 most           delivery cap, 0 for none
--   4 most_dead      dead letters kept, 0 for all
--   5... wanted      deduplication key of the marker, as it stands in the entry
-- Returns: {1 when the lease is gone and 0 when more is left, messages made claimable, messages buried, dead letters dropped for their cap,
--   deduplication key whose marker the next call must bring}
-- Repeat: goes on where it stands; a lease that lives again or is gone is left alone.

--- @include clock
--- @include admit
--- @include bell
--- @include entry
--- @include dead
--- @include lease
--- @include ranges
--- @include slots
--- @include come_back
local lease_key, leases, counters, bell = KEYS[1], KEYS[2], KEYS[7], KEYS[8]
local MOST_BYTES = 524288 -- with 250 messages a step of 1 to 3 ms
local name, step, most = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3])
admit(leases)
local tokens = redis.call('LLEN', bell)
redis.call('HLEN', counters)
redis.call('ZCARD', KEYS[4])
redis.call('ZCARD', KEYS[5])
redis.call('HLEN', KEYS[6])
redis.call('STRLEN', KEYS[3])
local owner = KEYS[9] and redis.call('GET', KEYS[9])
local ms = math.floor(clock_us() / 1000)
local deadline, lease = tonumber(redis.call('ZSCORE', leases, name)), read_lease(lease_key)
if not lease then
  redis.call('ZREM', leases, name) -- evicted or deleted from outside; nothing is left to take back
  return {1, 0, 0, 0}
end
-- A lease without a deadline was damaged from outside, and one that is fenced stays so whatever the clock says by now.
if deadline and deadline > ms and lease.token ~= '-' then
  return {1, 0, 0, 0}
end

if lease.token ~= '-' then
  redis.call('HSET', lease_key, 'fenced', lease.token, 'left', held_slots(lease_key, lease), 'from', 1)
  lease.token = '-'
  redis.call('HSET', lease_key, 'm', pack_lease(lease))
  if lease.held < lease.size and lease.size > 1000 then
    return {0, 0, 0, 0} -- what is left was many slots to tell: work enough for one step
  end
end
local from = tonumber(redis.call('HGET', lease_key, 'from'))
local slots, entries = read_slots(lease_key, from, lease.size, step, MOST_BYTES)
-- Only a lease of one message buries for the count, so at most one marker is asked for; it goes with its message.
if lease.size == 1 and slots[1] and is_bound(entries[1]) and key_of(entries[1]) ~= ARGV[5] then
  local _, deadly = come_back(entries[1], true, lease, most, false)
  if deadly then
    return {0, 0, 0, 0, key_of(entries[1])}
  end
end
local buried = 0
for i = 1, #slots do
  local entry, deadly = come_back(entries[i], true, lease, most, false)
  if deadly then
    bury(KEYS[5], KEYS[6], ms, entry, id_of(entry), spent(entry, lease, most, '\31\31', 'lease expired while being handled'))
    buried = buried + 1
    if owner == id_of(entry) then
      redis.call('DEL', KEYS[9])
    end
  else
    redis.call('ZADD', KEYS[4], sequence_of(entry), entry)
  end
end
drop_slots(lease_key, slots)
local dropped = cap_dead(KEYS[5], KEYS[6], counters, tonumber(ARGV[4]), buried)
lease.held = lease.held - #slots
if #slots > 0 then
  redis.call('HINCRBY', counters, 'in_flight', -#slots)
  redis.call('HINCRBY', counters, 'reaped', #slots - buried)
  redis.call('HINCRBY', counters, 'buried', buried)
end
if #slots > buried then
  ring(bell, tokens)
end
if lease.held > 0 and #slots > 0 then
  redis.call('HSET', lease_key, 'm', pack_lease(lease), 'from', slots[#slots] + 1)
  return {0, #slots - buried, buried, dropped}
end
local token, left, returned, gone = unpack(redis.call('HMGET', lease_key, 'fenced', 'left', 'returned', 'buried'))
redis.call('UNLINK', lease_key)
redis.call('ZREM', leases, name)
redis.call('SET', KEYS[3], close_record('reaped', token, ms, lease, returned or '', gone or '', left), 'PX', lease.keep)
return {1, #slots - buried, buried, dropped}
