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
--   8 wakeup
--   9 set_aside      values of kinds that only a newer version knows
--  10... marker      of a message that must be buried and frees it, once an answer asked for it
-- ARGV:
--   1 name           the lease's member in `leases`
--   2 step           most messages to move
--   3 most           delivery cap, 0 for none
--   4 max_dead_length      dead letters kept, 0 for all
--   5... wanted      deduplication key of the marker, as it stands in the entry
-- Returns: {1 when the lease is gone and 0 when more is left, messages made claimable, messages and other values buried, dead letters dropped
--   for their cap, values set aside, deduplication key whose marker the next call must bring}
-- Repeat: goes on where it stands; a lease that lives again or is gone is left alone. A lease that was damaged from outside is in nobody's
--   hand, and comes back at once, whatever it says of itself.

--- @include clock
--- @include oom_guard
--- @include wakeup
--- @include count_up
--- @include numbers
--- @include entry
--- @include dead
--- @include foreign_values
--- @include lease
--- @include ranges
--- @include slots
--- @include requeue_entry
--- @include recount
local lease_key, leases, counters, wakeup = KEYS[1], KEYS[2], KEYS[7], KEYS[8]
local MAX_BYTES = 524288 -- with 250 messages a step of 1 to 3 ms
local name, step, most = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3])
oom_guard(leases)
local tokens = redis.call('LLEN', wakeup)
redis.call('HLEN', counters)
redis.call('ZCARD', KEYS[4])
redis.call('ZCARD', KEYS[5])
redis.call('HLEN', KEYS[6])
redis.call('STRLEN', KEYS[3])
redis.call('ZCARD', KEYS[9])
local owner = KEYS[10] and redis.call('GET', KEYS[10])
local ms = math.floor(clock_us() / 1000)
local deadline, lease = tonumber(redis.call('ZSCORE', leases, name)), read_lease(lease_key)
if not lease then
  redis.call('ZREM', leases, name) -- evicted or deleted from outside; nothing is left to take back
  return {1, 0, 0, 0, 0}
end
-- A lease without a deadline was damaged from outside, and one that is fenced stays so whatever the clock says by now.
if deadline and deadline > ms and lease.token ~= '-' and not lease.damaged then
  return {1, 0, 0, 0, 0}
end

if lease.token ~= '-' and not lease.damaged then
  redis.call('HSET', lease_key, 'fenced', lease.token, 'left', held_slots(lease_key, lease), 'from', 1)
  lease.token = '-'
  redis.call('HSET', lease_key, 'm', pack_lease(lease))
  if lease.held < lease.size and lease.size > 1000 then
    return {0, 0, 0, 0, 0} -- what is left was many slots to tell: work enough for one step
  end
end
local from = math.max(1, to_integer(redis.call('HGET', lease_key, 'from')))
local slots, entries = read_slots(lease_key, from, lease.size, step, MAX_BYTES)
local others = 0 -- values under names that are no slots
if #slots == 0 then -- its own slots are all back; something else may have written others, or its size
  slots, entries, others = read_other_fields(lease_key, step, MAX_BYTES)
end
-- Only a lease of one message buries for the count, so at most one marker is asked for; it goes with its message.
if lease.size == 1 and slots[1] and is_entry(entries[1]) and is_bound(entries[1]) and key_of(entries[1]) ~= ARGV[5] then
  local _, deadly = requeue_entry(entries[1], true, lease, most, false)
  if deadly then
    return {0, 0, 0, 0, 0, key_of(entries[1])}
  end
end
local back, buried, foreign, aside = 0, 0, 0, 0
for i = 1, #slots do
  if not is_entry(entries[i]) then
    local set_aside, away = store_foreign(KEYS[9], KEYS[5], KEYS[6], counters, ms, entries[i])
    aside, foreign = aside + set_aside, foreign + away
  else
    local entry, deadly = requeue_entry(entries[i], true, lease, most, false)
    if deadly then
      bury(KEYS[5], KEYS[6], ms, entry, id_of(entry), reason_of_count(entry, lease, most, '\31\31', 'lease expired while being handled'))
      buried = buried + 1
      if owner == id_of(entry) then
        redis.call('DEL', KEYS[10])
      end
    else
      redis.call('ZADD', KEYS[4], sequence_of(entry), entry)
      back = back + 1
    end
  end
end
drop_slots(lease_key, slots)
local dropped = trim_dead(KEYS[5], KEYS[6], counters, tonumber(ARGV[4]), buried + foreign)
lease.held = math.max(0, lease.held - #slots + others)
if #slots > 0 then
  count_up(counters, 'in_flight', others - #slots)
  local recount, fenced = redis.call('HGET', counters, 'recount'), redis.call('HGET', lease_key, 'fenced')
  adjust_recount(counters, recount, name, fenced, others - #slots)
  count_up(counters, 'reaped', back)
  count_up(counters, 'buried', buried)
end
if back > 0 then
  wake_consumer(wakeup, tokens)
end
if #slots > 0 and not lease.damaged then
  redis.call('HSET', lease_key, 'm', pack_lease(lease), 'from', (tonumber(slots[#slots]) or lease.size) + 1)
end
if #slots > 0 and #names_in(lease_key) > 0 then
  return {0, back, buried + foreign, dropped, aside}
end
local token, left, returned, gone = unpack(redis.call('HMGET', lease_key, 'fenced', 'left', 'returned', 'buried'))
redis.call('UNLINK', lease_key)
redis.call('ZREM', leases, name)
redis.call('SET', KEYS[3], closed_record('reaped', token or lease.token, ms, lease, valid_ranges(returned), valid_ranges(gone), valid_ranges(left)), 'PX', lease.keep)
return {1, back, buried + foreign, dropped, aside}
