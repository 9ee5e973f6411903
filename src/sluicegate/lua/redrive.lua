-- Make named dead messages pending again, at the tail, in their first order, with their counts reset.
-- Guarantee: a message is pending before its dead record goes; one whose deduplication key another message holds stays
--   dead.
-- KEYS:
--   1 pending              a list; of a group, its stream, which nothing is added to
--   2 returned
--   3 delayed
--   4 dead
--   5 dead_records
--   6 counters
--   7 wakeup
--   8 receipt              the answer of this redrive's last step
--   9 tracking             the records of batches and jobs
--  10 tracking_ended       those that ended, by the time when they are removed
--  11 tracking_news        the latest that ended
--  12 marker_counters      the totals of the stream of a group, with the chain of its markers; of a queue its own
--  13... buckets           of the markers of the named messages that have a deduplication key
-- ARGV:
--   1 step                 number of this step
--   2 receipt_ms           lifetime of the receipt
--   3 mark                 messages buried later than this time in ms have died again, and stay
--   4 max_pending_length   pending, returned and delayed messages that the queue may hold, 0 for any number
--   5 marker_ms            lifetime of a marker that ends with its message
--   6 refuse_early         1: refuse while the mark's millisecond lasts, so that a message that dies again dies later
--   7 group                the name of the group of a stream, which redrives into `returned`; "" for a queue
--   8 known_chain          the chain of marker generations that the client knows
--   9 plan                 how fields and buckets belong together
--  10 fields               of the markers
--  11... named             per message: its id; number of its marker, 0 for none
-- Returns: {messages redriven, number of the first that did not fit or 0, number of a message that is blocked, ...};
--   {-1} when it is too early; {"chain", chain} when the markers are elsewhere by now
-- Repeat: answered from the receipt.

--- @include clock, count_up, end_marker, entry, entry_counts, entry_key, entry_sequence, layout, named_markers
--- @include named_values, oom_guard, packed, receipt, room, sound_block, tracked, tracking, wakeup
local latest, max_length = tonumber(mark), tonumber(max_pending_length)
step = tonumber(step)
oom_guard(dead)
local tokens, done = redis.call('LLEN', wakeup), stored_answer(receipt, step)
if done then
  return done
end
if refuse_early == '1' and clock_us() < (latest + 1) * 1000 then
  return {-1}
end
local newer = newer_layout(redis.call('HGET', counters, 'layout'))
if newer then return newer end
redis.call('HLEN', dead_records)
redis.call('ZCARD', returned)
redis.call('ZCARD', delayed)
local room = room_for(max_length, group == '' and redis.call('LLEN', pending) or 0, returned, delayed, counters)
local markers, moved, chain = named_markers(marker_counters, known_chain, plan, fields, KEYS, buckets_at)
if moved then return moved end
local values, reply, entries, ids, held, messages = read_named_values(ARGV, named_at), {0, 0}, {}, {}, {}, 0

local function marker_place(one)
  return markers.first_place(markers.rank and markers.rank[one.marker] or one.marker)
end

-- Returns the entry as it becomes pending, or nil when the message is blocked: its record holds a foreign value, or
-- another message holds its key. A block, which an older consumer takes for a foreign value, becomes pending as it is.
local function entry_to_redrive(one)
  local record = redis.call('HGET', dead_records, one.name) or ''
  local entry = string.match(record, '^%d+\31[^\31]*\31[^\31]*\31[^\31]*\31(.*)$')
  if not entry or not is_entry(entry) or id_of(entry) ~= one.name then
    return group == '' and entry and sound_block(entry) and entry or nil
  end
  local owner = group == '' and one.marker > 0 and (held[marker_place(one)] or markers.owners[marker_place(one)])
  if owner and owner ~= one.name then
    return nil
  end
  return restamped(entry, 0, 0)
end

for i = 1, #values do
  local one = values[i]
  local buried = tonumber(redis.call('ZSCORE', dead, one.name))
  if buried and buried <= latest then
    local entry = entry_to_redrive(one)
    if not entry then
      reply[#reply + 1] = i
    elseif messages + messages_in(entry) > room then
      reply[2] = i
      break
    else
      entries[#entries + 1], ids[#ids + 1], messages = entry, one.name, messages + messages_in(entry)
      if one.marker > 0 and is_bound(entry) then
        moved = moved or chain.ensure(markers.ms, tonumber(marker_ms))
        held[marker_place(one)] = one.name -- freed when it died, and its own again from now on
      end
    end
  end
end
if moved then return moved end
reply[1] = #entries
local tally = any_tracked(tracking, entries)
  and new_tally(tracking, tracking_ended, tracking_news, math.floor(clock_us() / 1000))
if tally then -- first: a batch must never be complete while one of its messages waits
  tally.moved_all(entries, 'dead', 'waiting')
  tally.write()
end
if #entries > 0 then
  table.sort(entries, function(one, other) return sequence_of(one) < sequence_of(other) end)
  if messages > #entries then
    count_up(counters, 'packed', messages - #entries)
  end
  for first = 1, group == '' and #entries or 0, 1000 do
    redis.call('LPUSH', pending, unpack(entries, first, math.min(first + 999, #entries)))
  end
  for i = 1, group ~= '' and #entries or 0 do
    redis.call('ZADD', returned, sequence_of(entries[i]), entries[i])
  end
  for place, id in pairs(held) do
    hold_marker(markers, place, id, tonumber(marker_ms), group)
  end
  drop_dead(dead, dead_records, ids)
  count_up(counters, 'redriven', #entries)
  wake_consumer(wakeup, tokens)
end
return store_answer(receipt, step, receipt_ms, reply)
