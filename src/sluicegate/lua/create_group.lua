-- Create a group of a stream at an explicit start, and the stream with it.
-- Guarantee: a group that exists keeps its position, and the answer says at which start it was created.
-- KEYS:
--   1 stream
--   2 groups
--   3 receipt              the answer, for a repeat that comes after the group was deleted
-- ARGV:
--   1 group
--   2 start                what the caller asked for
--   3 position             id behind which the group starts; "$" for the end
--   4 life_ms              how long a temporary group lives without a keep-alive, 0 for one that lasts
--   5 receipt_ms           lifetime of the receipt
-- Returns: {1 when it was created, start at which the group was created, "" when another program created it, its
--   position}
-- Repeat: answered from the receipt.

--- @include clock, group_records, hash_guard, receipt
hash_guard(groups)
local done = stored_answer(receipt, 1)
if done then
  return done
end
local created, native = 0, native_group(stream, group)
if not native then
  redis.call('XGROUP', 'CREATE', stream, group, position, 'MKSTREAM')
  native, created = native_group(stream, group), 1
  local us, life = clock_us(), tonumber(life_ms)
  write_group_record(groups, group, {
    start = start, position = native['last-delivered-id'], made = string.format('%.0f', us), life_ms = life,
    expires_ms = life > 0 and math.floor(us / 1000) + life or 0,
  })
end
local record = read_group_record(redis.call('HGET', groups, group))
return store_answer(receipt, 1, receipt_ms, {created, record and record.start or '', native['last-delivered-id']})
