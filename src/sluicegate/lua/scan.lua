-- Read a page of one state's values, whole or only the part that identifies them.
-- Guarantee: reads only, and no more than a page; a value that stays in its state is on some page.
-- KEYS:
--   1 source               a list, or a zset of entries or of dead ids
--   2 dead_records         the dead records by id
--   3 counters
-- ARGV:
--   1 kind                 "oldest": a list from its right end; "newest": a list from its left end; "zset"; "dead"
--   2 mark                 dead: messages buried later than this time in ms are left out; "" for now
--   3 older_ms             dead: subtracted from now for the first mark
--   4 from                 newest: place of the first value; zset and dead: score of the value before the page
--   5 after                zset and dead: the member before the page, "" for the first page
--   6 max_values           to read; of blocks, the messages that must be looked at count
--   7 max_bytes            stop reading once this much is read
--   8 whole                1: whole values; 0: without headers and payload
--   9... wanted            report these ids only; dead: read these messages instead of a page
-- Returns: {mark, published total, values of lists that cancels removed, values or wanted ids read, 1 when nothing is
--   left to read, score and member of the last value that was read and not reported, place, value, ...}; the place is
--   that in a list from the left, the id of a dead message, or the score in a zset. The messages of a block are
--   reported one by one, as entries, and no page ends within one
-- Repeat: reads again.

--- @include block, block_index, clock, entry, layout, numbers, values_from
local limit, byte_limit = tonumber(max_values), tonumber(max_bytes)
mark = mark ~= '' and mark or string.format('%.0f', math.floor(clock_us() / 1000) - tonumber(older_ms))
local totals = redis.call('HMGET', counters, 'published', 'cancelled_values', 'layout')
local newer = newer_layout(totals[3])
if newer then return newer end
local reply, bytes, read = {mark, to_integer(totals[1]), to_integer(totals[2]), 0, 0, '', ''}, 0, 0

local function head_of(value)
  return is_entry(value) and string.match(value, '^[^\31]*\31[^\31]*\31') or '\31' .. redis.sha1hex(value)
end

local function shortened(value)
  if whole == '1' then
    return value
  elseif kind == 'dead' then
    local why, entry = string.match(value, '^(%d+\31[^\31]*\31[^\31]*\31[^\31]*\31)(.*)$')
    return why and why .. head_of(entry) or ''
  end
  return head_of(value)
end

local is_wanted, positions_of = ARGV[wanted_at] and {}, {}
for i = wanted_at, #ARGV do
  local batch, position = place_of(ARGV[i])
  is_wanted[ARGV[i]] = true
  if batch then
    positions_of[batch] = positions_of[batch] or {}
    positions_of[batch][position] = true
  end
end

-- Report the messages of a block at these positions, nil for all of them.
local function report_block(place, block, positions)
  for i = 1, block.count do
    if not positions or positions[block.position[i]] then
      reply[#reply + 1] = place
      reply[#reply + 1] = whole == '1' and entry_in(block, i) or head_in(block, i)
    end
  end
end

local counted = 0 -- towards the limit
local function add(place, value)
  local block = (kind == 'oldest' or kind == 'newest') and read_block(value)
  local positions = block and positions_of[block.batch]
  local opened = block and (positions or not is_wanted) and index_block(value)
  bytes, read, counted = bytes + #value, read + 1, counted + (opened and opened.count or 1)
  if opened then
    report_block(place, opened, positions)
  elseif not is_wanted or kind == 'dead' or is_entry(value) and is_wanted[id_of(value)] then
    reply[#reply + 1] = place
    reply[#reply + 1] = shortened(value)
  elseif kind == 'zset' then
    reply[6], reply[7] = place, value
  end
end

local start = 0
if kind == 'newest' then
  start = tonumber(from)
elseif after ~= '' then
  local rank = redis.call('ZRANK', source, after)
  start = rank and rank + 1 or redis.call('ZCOUNT', source, '-inf', '(' .. from)
end

if is_wanted and kind == 'dead' then
  for i = wanted_at, #ARGV do
    local buried = bytes < byte_limit and tonumber(redis.call('ZSCORE', source, ARGV[i]))
    if bytes >= byte_limit then
      break
    elseif buried and buried <= tonumber(mark) then
      add(ARGV[i], redis.call('HGET', dead_records, ARGV[i]) or '')
    else
      read = read + 1
    end
  end
  reply[4], reply[5] = read, read == #ARGV - wanted_at + 1 and 1 or 0
  return reply
end
local chunk = 1
while counted < limit and bytes < byte_limit and reply[5] == 0 do
  chunk = math.min(chunk, limit - counted)
  local places, values = values_from(kind, source, dead_records, mark, start + read, chunk)
  local before = read
  for i = 1, #values do
    if counted < limit and bytes < byte_limit then
      add(places[i], values[i])
    end
  end
  reply[5] = #values < chunk and read - before == #values and 1 or 0
  local fitting = read > 0 and bytes > 0 and math.ceil((byte_limit - bytes) * read / bytes) or 1
  chunk = math.max(1, math.min(chunk * 4, 1000, fitting)) -- as many as fit if they are as large as those before
end
reply[4] = read
return reply
