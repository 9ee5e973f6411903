-- Keep a temporary group alive.
-- Guarantee: moves the expiry of a temporary group only, and only forward.
-- KEYS:
--   1 groups
-- ARGV:
--   1 group
-- Returns: 1 when the group is temporary and known, else 0
-- Repeat: moves the expiry again.

--- @include clock, group_records, hash_guard
hash_guard(groups)
local record = read_group_record(redis.call('HGET', groups, group))
if not record or record.life_ms == 0 then
  return 0
end
record.expires_ms = math.max(record.expires_ms, math.floor(clock_us() / 1000) + record.life_ms)
write_group_record(groups, group, record)
return 1
