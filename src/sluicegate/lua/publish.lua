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
--  18... parts             per message: US key US headers US payload
-- Returns: {accepted, position, owner id, position, owner id, ...} with a pair per duplicate. When the maximum refused
--   or dropped messages, accepted is an array: {accepted, dropped, refused positions...}. {-1} when the batch is too
--   old; {-2, waiting} when the maximum refused the whole batch; {-3} when the batch it belongs to is sealed without
--   it; {"chain", chain} when the markers are elsewhere by now, {"chain", chain, answer} where this call changed it
-- Repeat: finds the receipt, or its own ids in the markers, and answers as the first time. It writes to a receipt that
--   it finds, because WAIT answers for the last write of its connection. A batch that was refused whole left nothing,
--   so its repeat may be accepted.

--- @include clock, count_up, enqueue, new_markers, newest_sequence, oldest_pending, room, tracked_publish
--- @include unpacked, wakeup
local max_length, receipt_life = tonumber(max_pending_length), tonumber(receipt_ms)
local tokens = redis.call('LLEN', wakeup)
redis.call('LLEN', pending)
redis.call('HLEN', counters)
local known = known_outcomes(receipt, receipt_life, tracking, tracked, batch)
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
local markers, moved = new_markers(counters, known_chain, plan, fields, KEYS, buckets_at, ms, life, window)
if moved then return moved end
local sequence = last_sequence(counters, pending, returned)
local partial, owners, names, rank = overload == 'partial', markers.owners, markers.names, markers.rank
local repeats = fields ~= '' and distinct == '0'
local prefix, number_of = batch .. '-', unpacked('s', numbers, #ARGV - parts_at + 1, 1)
local head, stamp = kind .. '%012x', string.format('%012x', ms) .. '0000' .. prefix
local reply, entries, owned, refused, fresh_at, fresh, mine = {0}, {}, {}, {}, {}, 0, 0
local ARGV, format, batch, before_parts = ARGV, string.format, batch, parts_at - 1 -- locals: read for every message
for i = 1, #ARGV - before_parts do
  local at, number = rank and rank[i] or i, number_of[i]
  local owner = owners[at] or repeats and owned[names[at]]
  if not owner then
    if partial and fresh >= room then
      refused[#refused + 1] = i - 1
    else
      fresh = fresh + 1
      entries[fresh] = format(head, sequence + fresh) .. stamp .. number .. ARGV[before_parts + i]
      fresh_at[at] = number
      if repeats then
        owned[names[at]] = prefix .. number
      end
    end
  elseif owner == prefix .. number then
    mine = mine + 1
  else
    reply[#reply + 1] = i - 1
    reply[#reply + 1] = owner
  end
end
if fresh > room and (overload ~= 'drop_oldest' or kept + fresh > max_length) then
  return {-2, waiting}
end

local dropped = math.max(0, fresh - room)
reply[1] = #refused + dropped > 0 and {fresh + mine, dropped, unpack(refused)} or fresh + mine
local oldest = oldest_pending(tracking, pending, dropped)
if tracked ~= '' or job_kinds ~= '' or #oldest.lost > 0 then
  record_publish(tracking, tracking_ended, tracking_news, ms, tracked, job_kinds, entries, due, oldest.lost)
end
if fresh > 0 then
  -- `jobs` tells a queue of jobs from a queue of messages.
  local jobs = job_kinds ~= '' and {'jobs', 1} or {}
  redis.call('HSET', counters, 'published', format('%.0f', sequence + fresh), unpack(jobs))
  enqueue(pending, delayed, entries, due)
  markers.write(fresh_at, prefix, '', sequence)
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
