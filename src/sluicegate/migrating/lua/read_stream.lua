-- Read entries of another library's stream.
-- Guarantee: reads only, in bounded steps.
-- KEYS:
--   1 stream
-- ARGV:
--   1 after                the id behind which to read
--   2 count                maximum entries
--   3 max_bytes            read no further entry once this much is read
-- Returns: {1 when these are the last ones and else 0, {id, {field, value, ...}}...}
-- Repeat: reads again.

--- @include unread
local entries = {0}
local _, ended = read_entries(stream, after, tonumber(count), tonumber(max_bytes), function(id, fields)
  entries[#entries + 1] = {id, fields}
end)
entries[1] = ended and 1 or 0
return entries
