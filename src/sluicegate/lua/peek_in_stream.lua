-- Show messages of a stream, from an id on, whoever has finished them.
-- Guarantee: reads only.
-- KEYS:
--   1 stream
-- ARGV:
--   1 after                the id behind which it begins
--   2 count                maximum messages
-- Returns: the messages as a group has them, numbered from 1
-- Repeat: reads again.

--- @include stream_entry, unread
local MAX_BYTES, reply, make_message = 8388608, {}, message_maker()
read_entries(stream, after, tonumber(count), MAX_BYTES, function(id, fields)
  reply[#reply + 1] = make_message(id, fields, #reply + 1)
end)
return reply
