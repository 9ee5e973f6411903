-- Show messages of one state, the next to be claimed first, or records of a history, the newest first.
-- Guarantee: reads only.
-- KEYS:
--   1 source               a list, or a zset of entries or of dead ids
--   2 dead_records         the dead records by id
--   3 counters
-- ARGV:
--   1 kind                 "list", "zset", "dead" or "history"; "unread": what a group has not read of a stream
--   2 count                maximum messages
--   3 offset               messages to skip first
--   4 group                the name of the group of a stream, "" for a queue
-- Returns: the stored values; for a dead message without a record, ''
-- Repeat: reads again.

--- @include numbers, stream_entry, unread
local MAX_BYTES = 33554432
count, offset = tonumber(count), tonumber(offset)
if kind == 'unread' then
  local unread, reply, make_message, seen = read_group(source, group), {}, message_maker(), 0
  local sequence = to_integer(redis.call('HGET', counters, 'published'))
  local skipped, _, after = read_entries(source, unread.position, offset, math.huge, function() seen = seen + 1 end)
  if skipped == offset then
    read_entries(source, offset > 0 and after or unread.position, count, MAX_BYTES, function(id, fields)
      reply[#reply + 1] = make_message(id, fields, sequence + offset + #reply + 1)
    end)
  end
  return reply
end
if kind == 'list' then
  local values, reply = redis.call('LRANGE', source, -(offset + count), -(offset + 1)), {}
  for i = #values, 1, -1 do
    reply[#reply + 1] = values[i]
  end
  return reply
end
if kind == 'history' then
  return redis.call('LRANGE', source, offset, offset + count - 1)
end
local members = redis.call('ZRANGE', source, offset, offset + count - 1)
if kind == 'zset' then
  return members
end
local reply = {}
for first = 1, #members, 1000 do
  local found = redis.call('HMGET', dead_records, unpack(members, first, math.min(first + 999, #members)))
  for i = 1, #found do
    reply[#reply + 1] = found[i] or ''
  end
end
return reply
