-- Show a lease: who holds it, and the entries of some of its slots.
-- Guarantee: reads only.
-- KEYS:
--   1 lease
--   2 leases
--   3 closed
-- ARGV:
--   1 name           the lease's member in `leases`
--   2 first          first slot that is asked for
--   3 last           last one, 0 for none
--   4 max_bytes     stop reading once this much is read
-- Returns: {"open", token, takeovers, size, held, ms to its deadline, slots, entries} with the asked slots that are still held;
--   {"ended", token, how, size, acked, returned slots, buried slots} from the record of its end; {"unknown"} without either
-- Repeat: reads again.

--- @include clock
--- @include entry
--- @include lease
--- @include ranges
--- @include closed_record
--- @include slots
local lease, first, last = read_lease(KEYS[1]), tonumber(ARGV[2]), tonumber(ARGV[3])
if lease and lease.token ~= '-' and not lease.damaged then
  local deadline = tonumber(redis.call('ZSCORE', KEYS[2], ARGV[1])) or 0
  local slots, entries = {}, {}
  local held, found = read_slots(KEYS[1], first, math.min(last, lease.size), lease.size, tonumber(ARGV[4]))
  for i = 1, #held do
    if is_entry(found[i]) then -- else it was overwritten from outside
      slots[#slots + 1], entries[#entries + 1] = held[i], found[i]
    end
  end
  return {
    'open', lease.token, lease.takeovers, lease.size, lease.held,
    math.floor(math.max(-LATEST, math.min(LATEST, deadline - clock_us() / 1000))), slots, entries,
  }
end
local record = redis.call('GET', KEYS[3])
record = record and read_closed_record(record)
if record and record.token then -- a remembered empty answer has none
  return {
    'ended', record.token, record.how, record.size, record.acked, count_slots(record.returned), count_slots(record.buried),
  }
end
return {'unknown'}
