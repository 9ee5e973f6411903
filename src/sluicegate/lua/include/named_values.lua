--- @include end_marker, entry
-- Stored values that a first call reported and a second call names, in pairs: the value's name, and the position of its
-- deduplication marker among the call's markers, 0 for none.
-- A foreign value has no id. Its name starts with a separator, which no id holds.
local function name_of(value)
  return is_entry(value) and id_of(value) or '\31' .. redis.sha1hex(value)
end

local function read_named_values(argv, first)
  local named = {}
  for at = first, #argv, 2 do
    named[#named + 1] = {name = argv[at], marker = tonumber(argv[at + 1])}
  end
  return named
end

-- Free a deduplication key that belongs to the message `id`, before that message is deleted. A script that is stopped
-- in between leaves a message without its marker, which the next attempt deletes, and never a key that is held for a
-- deleted message.
local function free_marker(markers, number, id, stream, group)
  if number > 0 then
    end_marker(markers, markers.rank and markers.rank[number] or number, id, stream, group)
  end
end

local function drop_members(zset, members)
  for first = 1, #members, 1000 do
    redis.call('ZREM', zset, unpack(members, first, math.min(first + 999, #members)))
  end
end

local function drop_dead(dead, records, ids)
  drop_members(dead, ids)
  for first = 1, #ids, 1000 do
    redis.call('HDEL', records, unpack(ids, first, math.min(first + 999, #ids)))
  end
end
