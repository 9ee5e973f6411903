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
--   6 max_values           to read
--   7 max_bytes            stop reading once this much is read
--   8 whole                1: whole values; 0: without headers and payload
--   9... wanted            report these ids only; dead: read these messages instead of a page
-- Returns: {mark, published total, cancelled total, values or wanted ids read, 1 when nothing is left to read, score
--   and member of the last value that was read and not reported, place, value, ...}; the place is that in a list from
--   the left, the id of a dead message, or the score in a zset
-- Repeat: reads again.

--- @include clock, entry, numbers
local limit, byte_limit = tonumber(max_values), tonumber(max_bytes)
mark = mark ~= '' and mark or string.format('%.0f', math.floor(clock_us() / 1000) - tonumber(older_ms))
local totals = redis.call('HMGET', counters, 'published', 'cancelled')
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

local is_wanted = ARGV[wanted_at] and {}
for i = wanted_at, #ARGV do
  is_wanted[ARGV[i]] = true
end
local function add(place, value)
  bytes, read = bytes + #value, read + 1
  if not is_wanted or kind == 'dead' or is_entry(value) and is_wanted[id_of(value)] then
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

-- Returns the next `count` values as places and values; fewer when the source ends.
local function next_values(count)
  local first, places, values = start + read, {}, {}
  if kind == 'newest' then
    values = redis.call('LRANGE', source, first, first + count - 1)
    for i = 1, #values do
      places[i] = first + i - 1
    end
  elseif kind == 'oldest' then
    local batch = redis.call('LRANGE', source, -(first + count), -(first + 1))
    for i = #batch, 1, -1 do
      places[#places + 1], values[#values + 1] = first, batch[i]
    end
  else
    local batch = redis.call('ZRANGE', source, first, first + count - 1, 'WITHSCORES')
    for i = 1, #batch, 2 do
      if kind == 'zset' then
        places[#places + 1], values[#values + 1] = batch[i + 1], batch[i]
      elseif tonumber(batch[i + 1]) <= tonumber(mark) then
        places[#places + 1], values[#values + 1] = batch[i], redis.call('HGET', dead_records, batch[i]) or ''
      end
    end
  end
  return places, values
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
while read < limit and bytes < byte_limit and reply[5] == 0 do
  chunk = math.min(chunk, limit - read)
  local places, values = next_values(chunk)
  for i = 1, #values do
    add(places[i], values[i])
  end
  reply[5] = #values < chunk and 1 or 0
  local fitting = read > 0 and bytes > 0 and math.ceil((byte_limit - bytes) * read / bytes) or 1
  chunk = math.max(1, math.min(chunk * 4, 1000, fitting)) -- as many as fit if they are as large as those before
end
reply[4] = read
return reply
