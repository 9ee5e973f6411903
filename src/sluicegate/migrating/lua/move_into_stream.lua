-- Move entries of another stream into this one, under their ids, and what its groups hold of them.
-- Guarantee: a page enters once, however often and from wherever it is sent.
-- KEYS:
--   1 stream
--   2 counters
--   3 moved                by source, the last page that entered
--   4... wakeups           of the named groups
-- ARGV:
--   1 origin               the source
--   2 from                 the id up to which it has entered before, "0-0" for nothing
--   3 page                 the id of the last entry
--   4 keep_ms              how long `moved` is kept from now on
--   5 known                number of groups that are named
--   6 held                 number of entries that consumers hold
--   7... values            names of groups; per held entry its group, consumer, id, idle time in ms and deliveries;
--                          per entry its id, the number of its fields and values, and these
-- Returns: {entries that entered}; {-1} when the page had entered before; {-2, last page} when another one than `from`
--   entered last; {-3, greatest id} when the stream has ids that these do not follow
-- Repeat: answers {-1}. Refused for memory like a publish, because it needs as much.

--- @include count_up, group_wakeups, stream_ids
redis.call('HLEN', counters)
redis.call('XLEN', stream)
local last, names, claims_at = redis.call('HGET', moved, origin), tonumber(known), values_at + known
local wakeups, at, count = group_wakeups(stream, KEYS, wakeups_at, ARGV, values_at, names), claims_at + 5 * held, 0
if last and not is_before(last, page) then
  return {-1}
elseif (last or '0-0') ~= from then
  return {-2, last or ''}
end
local info, greatest = redis.call('EXISTS', stream) == 1 and redis.call('XINFO', 'STREAM', stream) or {}, nil
for i = 1, #info, 2 do
  greatest = info[i] == 'last-generated-id' and info[i + 1] or greatest
end
if greatest and at <= #ARGV and not is_before(greatest, ARGV[at]) then
  return {-3, greatest}
end

while at <= #ARGV do
  local size = tonumber(ARGV[at + 1])
  redis.call('XADD', stream, ARGV[at], unpack(ARGV, at + 2, at + 1 + size))
  at, count = at + 2 + size, count + 1
end
for i = claims_at, claims_at + 5 * held - 1, 5 do
  redis.call('XCLAIM', stream, ARGV[i], ARGV[i + 1], 0, ARGV[i + 2], 'IDLE', ARGV[i + 3], 'RETRYCOUNT', ARGV[i + 4],
    'FORCE', 'JUSTID')
end
if count > 0 then
  count_up(counters, 'published', count)
  wakeups.ring()
end
redis.call('HSET', moved, origin, page)
redis.call('PEXPIRE', moved, keep_ms)
return {count}
