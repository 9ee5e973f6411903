-- Delete named waiting messages of one state with their deduplication markers.
-- Guarantee: deletes only messages that are named and still in that state, and a marker only when its message goes.
-- KEYS:
--   1 source               the list, or a zset of entries
--   2 leases
--   3 counters
--   4 receipt              the answer of this cancel's last step
--   5 tracking             the records of batches and jobs
--   6 tracking_ended       those that ended, by the time when they are removed
--   7 tracking_news        the latest that ended
--   8 pending              the stream of a group, whose markers it shares; of a queue not used
--   9 marker_counters      the totals of the stream of a group, with the chain of its markers; of a queue its own
--  10... buckets           of the markers of the named messages that have a deduplication key
-- ARGV:
--   1 kind                 "newest": a list; "zset", "delayed"
--   2 step                 number of this step
--   3 receipt_ms           lifetime of the receipt
--   4 from                 place from the left of the first value of the page on which the messages were found
--   5 to                   place of the last value of that page, -1 for the last of the list
--   6 cancelled            the total of values of lists that cancels had removed when they were found
--   7 group                the name of the group of a stream, "" for a queue
--   8 known_chain          the chain of marker generations that the client knows
--   9 plan                 how fields and buckets belong together
--  10 fields               of the markers
--  11... named             per message: its id, or its entry in a zset; number of its marker, 0 for none
-- Returns: {values that are gone from the list or zset, number of a deleted message among those named, ...};
--   {"chain", chain} when markers are elsewhere by now
-- Repeat: answered from the receipt.

--- @include clock, count_up, entry, layout, named_markers, named_on_page, named_values, numbers, oom_guard, packed
--- @include receipt, tracked, tracking
step = tonumber(step)
oom_guard(leases)
local done = stored_answer(receipt, step)
if done then
  return done
end
local newer = newer_layout(redis.call('HGET', counters, 'layout'))
if newer then return newer end
local markers, moved = named_markers(marker_counters, known_chain, plan, fields, KEYS, buckets_at)
if moved then return moved end
local values, gone = read_named_values(ARGV, named_at), {}
local entries, found = {}, nil

-- Make all values to be deleted alike first, so that one pass from the nearer end of the list removes any number. A
-- block keeps its place with what is left of it.
local function drop_from_list(length, places, packed)
  local side, number = places[#places].at * 2 > length and -1 or 1, 0
  for i = 1, #places do
    redis.call('LSET', source, places[i].at, places[i].left or '\31cancelled')
    number = number + (places[i].left and 0 or 1)
  end
  if number > 0 then
    redis.call('LREM', source, side * number, '\31cancelled')
    count_up(counters, 'cancelled_values', number)
  end
  lower_packed(counters, packed)
  return number
end

local length = 0
if kind == 'newest' then
  length = redis.call('LLEN', source)
  -- Other cancels move values to the left; new values move them to the right, onto later pages or towards the end of
  -- the list, where a claim also makes several values of a block.
  local moved = to_integer(redis.call('HGET', counters, 'cancelled_values')) - tonumber(cancelled)
  local last = tonumber(to) < 0 and length or tonumber(to)
  found = find_on_page(source, values, math.max(0, tonumber(from) - math.max(0, moved)), last)
  gone, entries = found.gone, found.entries
else
  redis.call('ZCARD', source)
  for i = 1, #values do
    if redis.call('ZSCORE', source, values[i].name) then
      gone[#gone + 1], entries[#entries + 1] = i, values[i].name
    end
  end
end
local tally = any_tracked(tracking, entries)
  and new_tally(tracking, tracking_ended, tracking_news, math.floor(clock_us() / 1000))
local members = {}
for i = 1, #gone do
  local one = values[gone[i]]
  members[i] = one.name
  local id = kind ~= 'newest' and id_of(one.name) or one.name
  free_marker(markers, one.marker, id, pending, group)
end
if markers then
  markers.flush()
end
local dropped = #gone
if #gone > 0 then
  if kind == 'newest' then
    dropped = drop_from_list(length, found.places, found.packed)
  else
    drop_members(source, members)
  end
  count_up(counters, 'cancelled', #gone)
end
if tally then
  tally.moved_all(entries, kind == 'delayed' and 'delayed' or 'waiting', 'gone', {why = 'cancelled\31\31'})
  tally.write()
end
table.insert(gone, 1, dropped)
return store_answer(receipt, step, receipt_ms, gone)
