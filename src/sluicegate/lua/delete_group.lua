-- Delete a group of a stream with its leases, returned and delayed messages, dead letters and totals.
-- Guarantee: deletes only the group that a first call reported, and the group last, so that a deletion that was
--   interrupted can be repeated. Meanwhile claims find the group paused.
-- KEYS:
--   1 stream
--   2 groups
--   3 leases
--   4 counters             of the group
--   5... others            the group's other keys, and then the leases that an earlier step named
-- ARGV:
--   1 group
--   2 mark                 what the first call answered, "" for that call
--   3 expired              1: delete only a temporary group that has expired and holds no open lease
--   4... names             of leases
-- Returns: {state, mark or names of leases...}. State 0: there is no such group, or no longer; 1: a first call found
--   it; 2: the next step must name these leases; 3: it is deleted
-- Repeat: finds another group or none.

--- @include clock, group_records, hash_guard
hash_guard(groups)
redis.call('ZCARD', leases)
redis.call('HLEN', counters)
local record, native = read_group_record(redis.call('HGET', groups, group)), native_group(stream, group)
local ms = math.floor(clock_us() / 1000)
if not record and not native then
  return {0}
elseif expired == '1' and (not record or record.life_ms == 0 or record.expires_ms > ms
  or redis.call('ZCOUNT', leases, string.format('(%.0f', ms), '+inf') > 0) then
  return {0}
elseif mark == '' then
  if not record then
    record = {start = '', position = native['last-delivered-id'], made = '', life_ms = 0, expires_ms = 0}
    record.made = string.format('%.0f', clock_us())
    write_group_record(groups, group, record)
  end
  return {1, record.made}
elseif not record or record.made ~= mark then
  return {0}
end
redis.call('HSET', counters, 'paused', '1')
local fixed = #KEYS - (#ARGV - names_at + 1)
for at = names_at, #ARGV do
  redis.call('UNLINK', KEYS[fixed + at - names_at + 1])
  redis.call('ZREM', leases, ARGV[at])
end
local left = redis.call('ZRANGE', leases, 0, 499)
if #left > 0 then
  table.insert(left, 1, 2)
  return left
end
for at = others_at, fixed do
  redis.call('UNLINK', KEYS[at])
end
redis.call('UNLINK', leases, counters)
if native then
  redis.call('XGROUP', 'DESTROY', stream, group)
end
redis.call('HDEL', groups, group)
return {3}
