-- Delete named waiting messages of one state with their deduplication markers.
-- Guarantee: only what is named and still in that state goes, and a marker only when it belongs to a message that goes.
-- KEYS:
--   1 source         the list, or a zset of entries
--   2 leases
--   3 counters
--   4 receipt        the answer of this cancel's last step
--   5... markers     of the named messages that have a deduplication key
-- ARGV:
--   1 kind           "newest": a list; "zset"
--   2 step           number of this step
--   3 receipt_ms     life of the receipt
--   4 from           place from the left of the first value of the page on which they were seen
--   5 to             place of the last value of that page
--   6 cancelled      the total of cancelled messages when they were seen
--   7... named       per message: its id, or its entry in a zset; number of its marker, 0 for none
-- Returns: {number of a deleted message among those named, ...}
-- Repeat: answered from the receipt.

--- @include oom_guard
--- @include count_up
--- @include numbers
--- @include entry
--- @include marker_owners
--- @include receipt
--- @include named_values
local source, counters, receipt, step = KEYS[1], KEYS[3], KEYS[4], tonumber(ARGV[2])
oom_guard(KEYS[2])
local done = stored_answer(receipt, step)
if done then
  return done
end
redis.call('HLEN', counters)
local owners, named, gone, places = marker_owners(KEYS, 5), read_named_values(ARGV, 7), {}, {}

-- Other cancels move values to the left, by no more than their number; what is pushed moves them to the right, onto later pages.
local function find_on_page()
  local by_name = {}
  for i = 1, #named do
    by_name[named[i].name] = i
  end
  local cancelled = to_integer(redis.call('HGET', counters, 'cancelled'))
  local first, last = math.max(0, tonumber(ARGV[4]) - math.max(0, cancelled - tonumber(ARGV[6]))), tonumber(ARGV[5])
  while first <= last do
    local batch = redis.call('LRANGE', source, first, math.min(first + 99, last))
    for i = 1, #batch do
      local number = by_name[name_of(batch[i])]
      if number then
        gone[#gone + 1] = number
        places[#places + 1] = first + i - 1
      end
    end
    if #batch == 0 then
      return
    end
    first = first + #batch
  end
end

-- One pass over the nearer side of the list, whatever the number: what goes is first made alike.
local function drop_from_list(length)
  local side = places[#places] * 2 > length and -1 or 1
  for i = 1, #places do
    redis.call('LSET', source, places[i], '\31cancelled')
  end
  redis.call('LREM', source, side * #places, '\31cancelled')
end

local length = 0
if ARGV[1] == 'newest' then
  length = redis.call('LLEN', source)
  find_on_page()
else
  redis.call('ZCARD', source)
  for i = 1, #named do
    if redis.call('ZSCORE', source, named[i].name) then
      gone[#gone + 1] = i
    end
  end
end
local members = {}
for i = 1, #gone do
  local one = named[gone[i]]
  members[i] = one.name
  free_marker(KEYS, 5, owners, one.marker, ARGV[1] == 'zset' and id_of(one.name) or one.name)
end
if #gone > 0 then
  if ARGV[1] == 'newest' then
    drop_from_list(length)
  else
    drop_members(source, members)
  end
  count_up(counters, 'cancelled', #gone)
end
return store_answer(receipt, step, ARGV[3], gone)
