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
--  10... markers           one per message, or none when the batch has no deduplication keys
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
--  13... parts             per message: US key US headers US payload
-- Returns: {accepted, position, owner id, position, owner id, ...} with a pair per duplicate. When the maximum refused
--   or dropped messages, accepted is an array: {accepted, dropped, refused positions...}. {-1} when the batch is too
--   old; {-2, waiting} when the maximum refused the whole batch; {-3} when the batch it belongs to is sealed without it
-- Repeat: finds the receipt, or its own ids in the markers, and answers as the first time. It writes to a receipt that
--   it finds, because WAIT answers for the last write of its connection. A batch that was refused whole left nothing,
--   so its repeat may be accepted.

--- @include clock, count_up, enqueue, marker_owners, newest_sequence, oldest_pending, packed
--- @include tracked_publish, wakeup
local max_length, receipt_life = tonumber(max_pending_length), tonumber(receipt_ms)
local tokens, waiting = redis.call('LLEN', wakeup), redis.call('LLEN', pending)
redis.call('HLEN', counters)
local known = known_outcomes(receipt, receipt_life, tracking, tracked, batch)
if known then
  return known
end
if tonumber(age_ms) > tonumber(oldest_ms) then
  return {-1}
end
local room, kept = math.huge, 0 -- `kept`: waiting messages that are never dropped
if max_length > 0 then
  kept = redis.call('ZCARD', returned) + redis.call('ZCARD', delayed)
  waiting = count_pending(waiting, redis.call('HGET', counters, 'packed')) + kept
  room = math.max(0, max_length - waiting)
end
local ms = math.floor(clock_us() / 1000)
local due = due_time(ms, tonumber(due_ms), tonumber(delay_ms))

local sequence = last_sequence(counters, pending, returned)
local owners, partial, keyed = marker_owners(KEYS, markers_at), overload == 'partial', KEYS[markers_at] ~= nil
local head, stamp = kind .. '%012x', string.format('%012x', ms) .. '0000'
local reply, entries, owned, refused, fresh, mine = {0}, {}, {}, {}, 0, 0
local KEYS, ARGV, call, format, batch = KEYS, ARGV, redis.call, string.format, batch -- locals: read for every message
local before_markers, before_parts = markers_at - 1, parts_at - 1
for i = 1, #ARGV - before_parts do
  local marker, id = KEYS[before_markers + i], format('%s-%d', batch, i - 1)
  local owner = owners[i] or (keyed and owned[marker])
  if not owner then
    if partial and fresh >= room then
      refused[#refused + 1] = i - 1
    else
      fresh = fresh + 1
      entries[fresh] = format(head, sequence + fresh) .. stamp .. id .. ARGV[before_parts + i]
      if keyed then
        owned[marker] = id
      end
    end
  elseif owner == id then
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
reply[1] = fresh + mine
if #refused + dropped > 0 then
  table.insert(refused, 1, dropped)
  table.insert(refused, 1, fresh + mine)
  reply[1] = refused
end
local oldest = oldest_pending(tracking, pending, dropped)
if tracked ~= '' or job_kinds ~= '' or #oldest.lost > 0 then
  record_publish(tracking, tracking_ended, tracking_news, ms, tracked, job_kinds, entries, due, oldest.lost)
end
if fresh > 0 then
  local first_due = due and redis.call('ZRANGE', delayed, 0, 0, 'WITHSCORES')[2]
  local marker_ms = due and kind % 2 == 0 and format('%.0f', window_ms + due - ms) or window_ms
  -- `jobs` tells a queue of jobs from a queue of messages.
  call('HSET', counters, 'published', format('%.0f', sequence + fresh), unpack(job_kinds ~= '' and {'jobs', 1} or {}))
  enqueue(pending, delayed, entries, due)
  for marker, id in pairs(owned) do
    call('PSETEX', marker, marker_ms, id) -- as SET with PX, with less work
  end
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
return reply
