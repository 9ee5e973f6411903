-- Find out which messages a group of a stream has not read.
-- Guarantee: reads only.
-- KEYS:
--   1 stream
-- ARGV:
--   1 group
--   2... ids               of messages
-- Returns: {those of these ids that are in the stream, behind the group's position}
-- Repeat: reads again.

--- @include stream_ids, unread
local unread, found = read_group(stream, group), {}
for i = ids_at, #ARGV do
  local id = ARGV[i]
  local is_behind = #id <= 41 and id_parts(id) and is_before(unread.position, id)
  if is_behind and #redis.call('XRANGE', stream, id, id) > 0 then
    found[#found + 1] = id
  end
end
return found
