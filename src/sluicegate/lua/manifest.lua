-- Show a lease: its state, its token, and the entries of some of its slots.
-- Guarantee: reads only.
-- KEYS:
--   1 lease
--   2 leases
--   3 closed
--   4 counters
-- ARGV:
--   1 name                 the lease's member in `leases`
--   2 first                first slot to show
--   3 last                 last slot to show, 0 for none
--   4 max_bytes            stop reading once this much is read
-- Returns: {"open", token, takeovers, size, held, ms to its deadline, slots, values} with the requested slots that are
--   still held, and a block with any of them whole, under its first slot; {"ended", token, how, size, acked, returned
--   slots, buried slots} from the record of its end; {"unknown"} without either
-- Repeat: reads again.

--- @include clock, closed_record, entry, layout, lease, lease_blocks, read_slots, sound_block, valid_ranges
local newer = newer_layout(redis.call('HGET', counters, 'layout'))
if newer then return newer end
local known = read_lease(lease)
if known and known.token ~= '-' and not known.damaged then
  local deadline = tonumber(redis.call('ZSCORE', leases, name)) or 0
  local slots, entries = {}, {}
  local upto = math.min(tonumber(last), known.size)
  local blocks = blocks_of(lease, known)
  local held, found = read_slots(lease, tonumber(first), upto, known.size, tonumber(max_bytes), blocks)
  for i = 1, #held do
    if is_entry(found[i]) or sound_block(found[i]) then -- else it was overwritten from outside
      slots[#slots + 1], entries[#entries + 1] = held[i], found[i]
    end
  end
  return {
    'open', known.token, known.takeovers, known.size, known.held,
    math.floor(math.max(-LATEST, math.min(LATEST, deadline - clock_us() / 1000))), slots, entries,
  }
end
local record = redis.call('GET', closed)
record = record and read_closed_record(record)
if record and record.token then -- a remembered empty answer has none
  local returned, buried = count_slots(record.returned), count_slots(record.buried)
  return {'ended', record.token, record.how, record.size, record.acked, returned, buried}
end
return {'unknown'}
