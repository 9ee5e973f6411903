-- Apply verdicts to slots of a lease: ack, discard, nack, release and bury, in any mixture.
-- Guarantee: a verdict takes effect once, only under the token of the open lease, and the answer names every slot for
--   which it did not.
-- KEYS:
--   1 lease
--   2 leases
--   3 closed
--   4 returned
--   5 delayed
--   6 dead
--   7 dead_records
--   8 counters
--   9 wakeup
--  10 completed            records of acked messages
--  11 failed               records of failed attempts
--  12 set_aside            messages of kinds that only a newer version knows
--  13 tracking             the records of batches and jobs
--  14 tracking_ended       those that ended, by the time when they are removed
--  15 tracking_news        the latest that ended
--  16 pending              the stream of a group, whose markers it shares; of a queue not used
--  17 marker_counters      the totals of the stream of a group, with the chain of its markers; of a queue its own
--  18... buckets           of the deduplication markers that end with the messages in `bound`
-- ARGV:
--   1 name                 the lease's member in `leases`
--   2 token
--   3 keep_ms              lifetime of the record of the end
--   4 recorded             0: a one-message lease with a library-made id, whose ack leaves no record where a repeat
--                          needs none; else 1
--   5 held_ms              time since the consumer's last confirmed answer
--   6 max_delivery_count   0 for no maximum
--   7 max_dead_length      dead messages kept, 0 for all
--   8 completed_cap         records kept in `completed`, 0 for all, -1 for no history
--   9 failed_cap           likewise in `failed`
--  10 bound                slots of the markers, as ranges
--  11 group                the name of the group of a stream, "" for a queue
--  12 known_chain          the chain of marker generations that the client knows
--  13 plan                 how fields and buckets belong together
--  14 fields               of the markers
--  15... groups            five per verdict: verb; slots as ranges; how long a nack delays them in ms; 1 when the
--                        verdict named its messages and 0 when it covers a batch; "reason US error type US error text",
--                        or of an ack the result of a job
-- Returns: {lost slots as ranges, slots still held, slots of this opening that are dead as ranges, dead messages
--   dropped for the maximum, messages set aside}, a value that was written over a message among the dead or set aside;
--   {"chain", chain} when the markers are elsewhere by now; {"opened"} when blocks kept the call busy: make it again
-- Repeat: a slot that is already gone under this token counts as done if the lease, or the record of its end, says that
--   it went this way. Nothing is recorded, freed or dropped for it again.

--- @include bound_markers, clock, closed_record, dead, history, layout, lease, lease_blocks, lease_fields
--- @include new_closed_record, oom_guard, recount, settled_blocks, slot_outcomes, tracking, verdicts, wakeup
oom_guard(leases)
local tokens = redis.call('LLEN', wakeup)
local recount, layout = unpack(redis.call('HMGET', counters, 'recount', 'layout'))
local newer = newer_layout(layout)
if newer then return newer end
local record, held, ms = redis.call('GET', closed), read_lease(lease), math.floor(clock_us() / 1000)
record = record and read_closed_record(record)
if not held or held.token ~= token then
  local fenced = held and held.token == '-' and fenced_record(lease)
  if fenced and fenced.token == token then
    return {lost_slots(fenced, ARGV, groups_at), 0, fenced.buried, 0, 0}
  elseif record and record.token == token then
    return {lost_slots(record, ARGV, groups_at), 0, record.buried, 0, 0}
  elseif not held and not record and recorded == '0' and tonumber(held_ms) < tonumber(keep_ms) then
    return {'', 0, '', 0, 0}
  end
  return {requested_slots(ARGV, groups_at), 0, '', 0, 0}
end

if moves_messages(ARGV, groups_at) then
  redis.call('ZCARD', returned)
  redis.call('ZCARD', delayed)
  redis.call('ZCARD', dead)
  redis.call('HLEN', dead_records)
  redis.call('ZCARD', set_aside)
end
local markers, moved = bound_markers(
  bound, marker_counters, known_chain, plan, fields, KEYS, buckets_at, ms, pending, group, ARGV, groups_at
)
if moved then return moved end
local most_dead, back, lost = tonumber(max_dead_length), 0, {}
local tally = (held.tracked or most_dead > 0) and new_tally(tracking, tracking_ended, tracking_news, ms)
local completions, failures = history(completed, tonumber(completed_cap)), history(failed, tonumber(failed_cap))
local blocks = open_blocks(lease, held, ARGV, groups_at, counters, recount, name)
if not blocks then return {'opened'} end
local verdicts = verdicts_of(lease, held, blocks, ms, markers, held.tracked and tally, completions, failures)
for at = groups_at, #ARGV, 5 do
  local verb, ranges = ARGV[at], ARGV[at + 1]
  if verb == 'ack' or verb == 'discard' then
    verdicts.finish(verb, ranges, lost, ARGV[at + 4])
  else
    back = back + verdicts.take_back(verb, ranges, lost, {
      delay = tonumber(ARGV[at + 2]), named = ARGV[at + 3] == '1', why = ARGV[at + 4],
      max_delivery_count = tonumber(max_delivery_count), returned = returned, delayed = delayed, dead = dead,
      records = dead_records, aside = set_aside, counters = counters,
    })
  end
end
adjust_recount(counters, recount, name, token, -verdicts.count(counters))
local dropped = trim_dead(dead, dead_records, counters, most_dead, verdicts.dead, tally)
if tally then tally.write() end
if held.held <= 0 and not verdicts.whole then -- a value that was written from outside must not end it too early
  held.held = count_held_slots(lease, blocks_of(lease, held))
end
if held.held > 0 then
  verdicts.keep()
else
  redis.call('UNLINK', lease)
  redis.call('ZREM', leases, name)
  -- Without a record a repeat counts as done only while it comes early and finds no record of another end.
  local came_back, died = verdicts.returned, verdicts.buried
  local late = tonumber(held_ms) * 2 > tonumber(keep_ms)
  if recorded == '1' or record or late or came_back ~= '' or died ~= '' then
    local how = (held.acked > 0 or died ~= '') and 'acked' or 'returned'
    redis.call('SET', closed, new_closed_record(how, token, ms, held, came_back, died, ''), 'PX', keep_ms)
  end
end
if back > 0 then wake_consumer(wakeup, tokens) end
return {table.concat(lost, ','), held.held, verdicts.buried, dropped, verdicts.aside}
