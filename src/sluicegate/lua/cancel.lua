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
--   9... markers           of the named messages that have a deduplication key
-- ARGV:
--   1 kind                 "newest": a list; "zset", "delayed"
--   2 step                 number of this step
--   3 receipt_ms           lifetime of the receipt
--   4 from                 place from the left of the first value of the page on which the messages were found
--   5 to                   place of the last value of that page
--   6 cancelled            the total of cancelled messages when they were found
--   7 group                the name of the group of a stream, "" for a queue
--   8... named             per message: its id, or its entry in a zset; number of its marker, 0 for none
-- Returns: {number of a deleted message among those named, ...}
-- Repeat: answered from the receipt.

--- @include clock, count_up, entry, marker_owners, named_values, numbers, oom_guard, receipt, tracked, tracking
step = tonumber(step)
oom_guard(leases)
local done = stored_answer(receipt, step)
if done then
  return done
end
redis.call('HLEN', counters)
local owners, values, gone, places = marker_owners(KEYS, markers_at), read_named_values(ARGV, named_at), {}, {}
local entries = {}

-- Other cancels move values to the left, by no more than their number; new values move them to the right, onto later
-- pages.
local function find_on_page()
  local by_name = {}
  for i = 1, #values do
    by_name[values[i].name] = i
  end
  local since = to_integer(redis.call('HGET', counters, 'cancelled')) - tonumber(cancelled)
  local first, last = math.max(0, tonumber(from) - math.max(0, since)), tonumber(to)
  while first <= last do
    local batch = redis.call('LRANGE', source, first, math.min(first + 99, last))
    for i = 1, #batch do
      local number = by_name[name_of(batch[i])]
      if number then
        gone[#gone + 1] = number
        places[#places + 1], entries[#entries + 1] = first + i - 1, batch[i]
      end
    end
    if #batch == 0 then
      return
    end
    first = first + #batch
  end
end

-- Make all values to be deleted alike first, so that one pass from the nearer end of the list removes any number.
local function drop_from_list(length)
  local side = places[#places] * 2 > length and -1 or 1
  for i = 1, #places do
    redis.call('LSET', source, places[i], '\31cancelled')
  end
  redis.call('LREM', source, side * #places, '\31cancelled')
end

local length = 0
if kind == 'newest' then
  length = redis.call('LLEN', source)
  find_on_page()
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
  free_marker(KEYS, markers_at, owners, one.marker, id, pending, group)
end
if #gone > 0 then
  if kind == 'newest' then
    drop_from_list(length)
  else
    drop_members(source, members)
  end
  count_up(counters, 'cancelled', #gone)
end
if tally then
  tally.moved_all(entries, kind == 'delayed' and 'delayed' or 'waiting', 'gone', {why = 'cancelled\31\31'})
  tally.write()
end
return store_answer(receipt, step, receipt_ms, gone)
