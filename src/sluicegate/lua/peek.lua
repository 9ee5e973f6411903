-- Show messages of one state, the next to be claimed first, or records of a history, the newest first.
-- Guarantee: reads only; of pending messages, a bounded part.
-- KEYS:
--   1 source               a list, or a zset of entries or of dead ids
--   2 dead_records         the dead records by id
--   3 counters
-- ARGV:
--   1 kind                 "pending", "list", "zset", "dead" or "history"; "unread": what a group has not read of a
--                        stream
--   2 count                maximum messages
--   3 offset               messages to skip first
--   4 group                the name of the group of a stream, "" for a queue
--   5 place                pending: values to pass before that
-- Returns: the stored values, and no more once they have 1 MiB (unread: 8); for a dead message without a record,
--   ''. Pending: {1 when nothing follows, place and
--   offset of what follows, messages of the first value that are skipped, value, ...} with entries and blocks; it ends
--   before `count` once 1 MiB is skipped and shown
-- Repeat: reads again.

--- @include layout, numbers, packed, stream_entry, unread
local MAX_BYTES, MAX_PASSED = 1048576, 1048576
count, offset = tonumber(count), tonumber(offset)
local totals = redis.call('HMGET', counters, 'packed', 'published', 'layout')
local newer = newer_layout(totals[3])
if newer then return newer end

-- Counts messages from the right end; `at` values are passed already, and `skip` messages behind them are not shown.
local function peek_pending(at, skip)
  local reply, shown, seen, passed, chunk = {0, 0, 0, 0}, 0, 0, 0, 1
  if skip > 0 and to_integer(totals[1]) <= 0 then
    at, skip = at + skip, 0 -- without blocks, each value is a message
  end
  while reply[1] == 0 and shown < count and passed < MAX_PASSED do
    chunk = math.min(chunk, skip + count - shown)
    local values = redis.call('LRANGE', source, -(at + chunk), -(at + 1))
    local left = #values
    while left > 0 and shown < count and passed < MAX_PASSED do
      local value, messages = values[left], messages_in(values[left])
      if skip < messages then
        reply[#reply + 1], reply[4], shown = value, reply[4] + skip, shown + messages - skip
      end
      skip, at, left = math.max(0, skip - messages), at + 1, left - 1
      seen, passed = seen + 1, passed + #value
      if shown > count then -- some messages of the last block follow
        at, skip = at - 1, messages - (shown - count)
      end
    end
    reply[1] = left == 0 and #values < chunk and 1 or 0
    chunk = math.max(1, math.min(chunk * 4, 1000, math.ceil((MAX_PASSED - passed) * seen / math.max(1, passed))))
  end
  reply[2], reply[3] = at, skip
  return reply
end

if kind == 'unread' then
  local unread, reply, make_message, seen = read_group(source, group), {}, message_maker(), 0
  local sequence = to_integer(totals[2])
  local skipped, _, after = read_entries(source, unread.position, offset, math.huge, function() seen = seen + 1 end)
  if skipped == offset then
    read_entries(source, offset > 0 and after or unread.position, count, 8 * MAX_BYTES, function(id, fields)
      reply[#reply + 1] = make_message(id, fields, sequence + offset + #reply + 1)
    end)
  end
  return reply
end
if kind == 'pending' then
  return peek_pending(tonumber(place), offset)
end

-- Values from place `at` on, at most `most` of them.
local function read_some(at, most)
  if kind == 'list' then
    local values, reply = redis.call('LRANGE', source, -(at + most), -(at + 1)), {}
    for i = #values, 1, -1 do
      reply[#reply + 1] = values[i]
    end
    return reply
  elseif kind == 'history' then
    return redis.call('LRANGE', source, at, at + most - 1)
  end
  local members = redis.call('ZRANGE', source, at, at + most - 1)
  if kind == 'zset' or #members == 0 then
    return members
  end
  local found = redis.call('HMGET', dead_records, unpack(members))
  for i = 1, #found do
    found[i] = found[i] or ''
  end
  return found
end

local reply, bytes, chunk, wanted = {}, 0, 1, 0
repeat
  wanted = math.min(chunk, count - #reply)
  local found = wanted > 0 and read_some(offset + #reply, wanted) or {}
  for i = 1, #found do
    reply[#reply + 1], bytes = found[i], bytes + #found[i]
  end
  local fitting = math.ceil((MAX_BYTES - bytes) * #reply / math.max(1, bytes))
  chunk = math.max(1, math.min(chunk * 4, 1000, fitting))
until #found < wanted or #reply >= count or bytes >= MAX_BYTES
return reply
