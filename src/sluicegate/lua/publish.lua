-- Make messages pending or delayed, except those whose deduplication key is held or for which there is no room.
-- Guarantee: each position of a batch enters the queue at most once, and every repeat in time has the same outcome.
-- KEYS:
--   1 pending
--   2 counters
--   3 wakeup
--   4 receipt              outcomes of this batch, where markers may not outlive its retries
--   5 returned             counts as waiting, when there is a maximum
--   6 delayed
--   7 tracking             the records of batches and jobs
--   8 tracking_ended       those that ended, by the time when they are removed
--   9 tracking_news        the latest that ended
--  10... buckets           of the markers of the messages' deduplication keys
-- ARGV:
--   1 batch                id of the batch; message i is "<batch>-<i>", from 0
--   2 age_ms               age of the batch at this attempt
--   3 oldest_ms            the greatest age at which a repeat is still known to be harmless
--   4 window_ms            lifetime of a marker
--   5 receipt_ms           lifetime of the receipt, 0 for none
--   6 kind                 first byte of the entries; "2": markers are freed as messages end, and live longer by a
--                        delay
--   7 delay_ms             from now until the messages fall due
--   8 due_ms               when they fall due, 0 to use the delay; messages that are due become pending
--   9 max_pending_length   messages that may wait (pending, returned and delayed), 0 for any number
--  10 overload             "raise": all or nothing; "partial": the first that fit; "drop_oldest": the oldest pending
--                        ones make room
--  11 tracked              the batch that they belong to, whose outcomes are kept as long as it, "" for none
--  12 job_kinds            of jobs, one for all or one of each, joined by US; "" for messages
--  13 known_chain          the chain of marker generations that the client knows
--  14 plan                 how fields and buckets belong together
--  15 fields               of the markers of the messages' deduplication keys, "" without keys
--  16 distinct             1: no two messages have the same key; else 0
--  17 numbers              0, 1, 2 ... as text, each followed by a zero byte: one per message
--  18 runs                 how many messages each part has, joined by commas; "" when each has one
--  19... parts             of a message: US key US headers US payload; of several: a block behind its 29th byte
-- Returns: {accepted, position, owner id, position, owner id, ...} with a pair per duplicate. When the maximum refused
--   or dropped messages, accepted is an array: {accepted, dropped, refused positions...}. {-1} when the batch is too
--   old; {-2, waiting} when the maximum refused the whole batch; {-3} when the batch it belongs to is sealed without
--   it; {"chain", chain} when the markers are elsewhere by now, {"chain", chain, answer} where this call changed it
-- Repeat: finds the receipt, or its own ids in the markers, and answers as the first time. It writes to a receipt that
--   it finds, because WAIT answers for the last write of its connection. A batch that was refused whole left nothing,
--   so its repeat may be accepted.

--- @include clock, count_up, enqueue, layout, new_markers, new_messages, newest_sequence, numbers, oldest_pending
--- @include room, tracked_publish, wakeup
local max_length, receipt_life = tonumber(max_pending_length), tonumber(receipt_ms)
local tokens = redis.call('LLEN', wakeup)
redis.call('LLEN', pending)
local totals = redis.call('HMGET', counters, 'layout', 'markers', 'published', 'packed')
local known = newer_layout(totals[1])
  or known_outcomes(receipt, receipt_life, tracking, tracked, batch)
if known then
  return known
end
if tonumber(age_ms) > tonumber(oldest_ms) then
  return {-1}
end
local ms, window = math.floor(clock_us() / 1000), tonumber(window_ms)
local due = due_time(ms, tonumber(due_ms), tonumber(delay_ms))
local first_due = due and redis.call('ZRANGE', delayed, 0, 0, 'WITHSCORES')[2]
local room, kept, waiting = room_for(max_length, redis.call('LLEN', pending), returned, delayed, counters)
local life = due and kind % 2 == 0 and window + due - ms or window
local count = (tonumber(string.match(string.sub(numbers, -8), '(%d+)%z$')) or -1) + 1 -- counting them takes longer
local markers, moved = new_markers(counters, totals[2], known_chain, plan, fields, KEYS, buckets_at, ms, life, window,
  count)
if moved then return moved end
local sequence = last_sequence(counters, totals[3], pending, returned)
local stamp, prefix, values = string.format('%012x', ms) .. '0000', batch .. '-', nil
local most = overload == 'partial' and room or math.huge
local found = decide(prefix, numbers, count, markers, fields == '' or distinct == '1', most)
local fresh, reply, refused = found.fresh, found.reply, found.refused
if fresh > room and (overload ~= 'drop_oldest' or kept + fresh > max_length) then
  return {-2, waiting}
elseif runs == '' then
  values = entries_of(found, kind, sequence, stamp, prefix, ARGV, parts_at)
else
  values = values_of(found, kind, sequence, stamp, prefix, ARGV, parts_at, runs)
end

local dropped = math.max(0, fresh - room)
reply[1] = #refused + dropped > 0 and {fresh + found.mine, dropped, unpack(refused)}
  or fresh + found.mine
local oldest = oldest_pending(tracking, pending, dropped)
if tracked ~= '' or job_kinds ~= '' or #oldest.lost > 0 then
  record_publish(tracking, tracking_ended, tracking_news, ms, tracked, job_kinds, values, due, oldest.lost)
end
if fresh > 0 then
  local changed = {'published', string.format('%.0f', sequence + fresh)}
  if job_kinds ~= '' then
    changed[3], changed[4] = 'jobs', 1 -- tells a queue of jobs from a queue of messages
  elseif fresh > #values then -- before they are stored: a stopped script must not leave it too low
    local packed = math.max(0, to_integer(totals[4])) + fresh - #values
    changed[3], changed[4], changed[5], changed[6] = 'packed', string.format('%.0f', packed), 'layout', 3
  end
  redis.call('HSET', counters, unpack(changed))
  enqueue(pending, delayed, values, due)
  markers.write(found.ids, prefix, '', sequence)
  if dropped > 0 then
    drop_oldest(pending, counters, oldest)
    count_up(counters, 'dropped', dropped)
  end
  if not due or not first_due or due < tonumber(first_due) then
    wake_consumer(wakeup, tokens)
  end
end
if #reply > 1 then
  count_up(counters, 'duplicates', (#reply - 1) / 2)
end
store_outcomes(receipt, receipt_life, tracking, tracked, batch, reply)
return markers.told(reply)
