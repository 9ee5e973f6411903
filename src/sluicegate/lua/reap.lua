-- Requeue the messages of an expired lease, in bounded steps.
-- Guarantee: the server's clock judges the deadline now. The lease is fenced before the first message moves, so its
--   consumer can no longer settle it.
-- KEYS:
--   1 lease
--   2 leases
--   3 closed
--   4 returned
--   5 dead
--   6 dead_records
--   7 counters
--   8 wakeup
--   9 set_aside            messages of kinds that only a newer version knows
--  10 tracking             the records of batches and jobs
--  11 tracking_ended       those that ended, by the time when they are removed
--  12 tracking_news        the latest that ended
--  13 pending              the stream of a group, whose markers it shares; of a queue not used
--  14 marker_counters      the totals of the stream of a group, with the chain of its markers; of a queue its own
--  15... buckets           of the marker that ends with a message to be buried, once an answer asked for it
-- ARGV:
--   1 name                 the lease's member in `leases`
--   2 step                 maximum messages to move in this step
--   3 max_delivery_count   0 for no maximum
--   4 max_dead_length      dead messages kept, 0 for all
--   5 group                the name of the group of a stream, "" for a queue
--   6 known_chain          the chain of marker generations that the client knows
--   7 plan                 how fields and buckets belong together
--   8 fields               of the marker
--   9... wanted            deduplication key of the marker, as it stands in the entry
-- Returns: {1 when the lease is gone and 0 when some of it is left, messages requeued, messages and foreign values
--   buried, dead messages dropped for the maximum, messages set aside, deduplication key whose marker the next call
--   needs}; {"chain", chain} when it is elsewhere by now
-- Repeat: continues where the last step ended. A lease that was opened again, or is gone, is left alone. A lease that
--   was damaged from outside belongs to no consumer, and is requeued at once whatever its fields say.

--- @include clock, count_up, dead, drop_slots, end_marker, entry, entry_key, foreign_values, layout, lease
--- @include lease_blocks, lease_fields, lease_leftovers, named_markers, new_closed_record, numbers, oom_guard, recount
--- @include requeue_entry, requeue_expired, tracking, valid_ranges, wakeup
local MAX_BYTES = 524288 -- with 250 messages a step takes 1 to 3 ms
local max_deliveries = tonumber(max_delivery_count)
step = tonumber(step)
oom_guard(leases)
local tokens = redis.call('LLEN', wakeup)
local newer = newer_layout(redis.call('HGET', counters, 'layout'))
if newer then return newer end
redis.call('ZCARD', returned)
redis.call('STRLEN', closed)
local to = foreign_stores(set_aside, dead, dead_records, counters)
to.returned = returned
local ms = math.floor(clock_us() / 1000)
local markers, moved = named_markers(marker_counters, known_chain, plan, fields, KEYS, buckets_at)
if moved then return moved end
local most_dead = tonumber(max_dead_length)
local deadline, held = tonumber(redis.call('ZSCORE', leases, name)), read_lease(lease)
if not held then
  redis.call('ZREM', leases, name) -- evicted or deleted from outside; nothing is left to requeue
  return {1, 0, 0, 0, 0}
end
-- A lease without a deadline was damaged from outside, and a fenced lease stays fenced whatever the clock says by now.
if deadline and deadline > ms and held.token ~= '-' and not held.damaged then
  return {1, 0, 0, 0, 0}
end

local tally = (held.tracked or most_dead > 0) and new_tally(tracking, tracking_ended, tracking_news, ms)
local blocks = blocks_of(lease, held)
if held.token ~= '-' and not held.damaged then
  redis.call('HSET', lease, 'fenced', held.token, 'left', held_slots(lease, held, blocks), 'from', 1)
  held.token = '-'
  redis.call('HSET', lease, 'm', pack_lease(held))
  if held.held < held.size and held.size > 1000 then
    return {0, 0, 0, 0, 0} -- reading the names of the slots left was enough work for one step
  end
end
local from = math.max(1, to_integer(redis.call('HGET', lease, 'from')))
local slots, entries, others, packed_in = read_expired(lease, held, blocks, from, step, MAX_BYTES)
-- Only a lease of one message buries for the count, so at most one marker is needed; it goes with its message.
local first = held.size == 1 and entries[1]
if first and is_entry(first) and is_bound(first) and key_of(first) ~= ARGV[wanted_at] then
  local _, deadly = requeue_entry(first, true, held, max_deliveries, false)
  if deadly then
    return {0, 0, 0, 0, 0, key_of(first)}
  end
end
local back, buried, foreign, aside = requeue_expired(to, ms, entries, held, max_deliveries, function(id)
  if markers then
    end_marker(markers, 1, id, pending, group)
  end
end, tally)
if markers then markers.flush() end
drop_slots(lease, slots)
drop_slots(lease, packed_in or {})
local dropped = trim_dead(dead, dead_records, counters, most_dead, buried + foreign, tally)
if tally then
  tally.write()
end
held.held = math.max(0, held.held - #slots + others)
if #slots > 0 then
  count_up(counters, 'in_flight', others - #slots)
  local recount, fenced = redis.call('HGET', counters, 'recount'), redis.call('HGET', lease, 'fenced')
  adjust_recount(counters, recount, name, fenced, others - #slots)
  count_up(counters, 'reaped', back)
  count_up(counters, 'buried', buried)
end
if back > 0 then
  wake_consumer(wakeup, tokens)
end
if #slots > 0 and not held.damaged then
  redis.call('HSET', lease, 'm', pack_lease(held), 'from', (tonumber(slots[#slots]) or held.size) + 1)
end
if #slots > 0 and #names_in(lease) > 0 then
  return {0, back, buried + foreign, dropped, aside}
end
local token, left, came_back, died = unpack(redis.call('HMGET', lease, 'fenced', 'left', 'returned', 'buried'))
redis.call('UNLINK', lease)
redis.call('ZREM', leases, name)
redis.call('SET', closed, new_closed_record('reaped', token or held.token, ms, held, valid_ranges(came_back),
  valid_ranges(died), valid_ranges(left)), 'PX', held.keep)
return {1, back, buried + foreign, dropped, aside}
