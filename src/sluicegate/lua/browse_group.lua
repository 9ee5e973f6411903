-- Read a page of what a group has not read of its stream, or find where such a page ends.
-- Guarantee: reads only, and no more than a page.
-- KEYS:
--   1 stream
--   2 counters             of the group
-- ARGV:
--   1 group                the name of the group
--   2 after                the id before the page, "" for the id that the group read last; the page begins no earlier
--   3 sequence             sequence number of the message with that id
--   4 last                 the greatest id that may be on the page, "" for any
--   5 max_values           to read
--   6 max_bytes            stop reading once this much is read
--   7 whole                1: messages; 0: only where the page ends
-- Returns: {sequence number and id of the last entry on the page, or those before it; 1 when none follows; entries on
--   the page; message, ...}
-- Repeat: reads again.

--- @include numbers, stream_entry, stream_ids, unread
local unread, make_message, reply = read_group(stream, group), message_maker(), {0, '', 0, 0}
local number, passed, count = to_integer(sequence), false, 0
if after == '' or is_before(after, unread.position) then
  after, number = unread.position, to_integer(redis.call('HGET', counters, 'published'))
end

local function add(id, fields)
  passed = passed or last ~= '' and is_before(last, id)
  if not passed then
    number, after, count = number + 1, id, count + 1
    if whole == '1' then
      reply[#reply + 1] = make_message(id, fields, number)
    end
  end
end

local _, ended = read_entries(stream, after, tonumber(max_values), tonumber(max_bytes), add)
reply[1], reply[2], reply[3], reply[4] = number, after, (ended or passed) and 1 or 0, count
return reply
