-- Drop entries of another library's stream that are in their new place.
-- Guarantee: drops those that are named, by their ids; a group is moved forward only.
-- KEYS:
--   1 stream
-- ARGV:
--   1 position             move the one named group up to here, and keep the entries for others; "" to delete them
--   2 known                number of groups that are named
--   3... values            names of groups, in which the entries are acked; then ids
-- Returns: how many were deleted
-- Repeat: finds none of them.

--- @include group_records, stream_ids
redis.call('XTRIM', stream, 'MINID', '0-0') -- removes nothing; allowed in a full Redis, and so is all that follows
local ids_at, count = values_at + known, 0
for i = ids_at, #ARGV, 1000 do
  local last = math.min(i + 999, #ARGV)
  for group = values_at, ids_at - 1 do
    if native_group(stream, ARGV[group]) then
      redis.call('XACK', stream, ARGV[group], unpack(ARGV, i, last))
    end
  end
  if position == '' then
    count = count + redis.call('XDEL', stream, unpack(ARGV, i, last))
  end
end
local group = position ~= '' and native_group(stream, ARGV[values_at])
if group and is_before(group['last-delivered-id'], position) then
  redis.call('XGROUP', 'SETID', stream, ARGV[values_at], position)
end
return count
