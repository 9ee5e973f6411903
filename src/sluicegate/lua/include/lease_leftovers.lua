--- @include lease_fields, ranges
-- What a reap needs to know of a lease's fields.

-- The slots still held, as ranges.
local function held_slots(key, lease)
  if lease.held == lease.size then
    return lease.size == 1 and '1' or '1-' .. lease.size
  end
  local slots, held, names = {}, {}, redis.call('HKEYS', key)
  for i = 1, #names do
    held[names[i]] = true
  end
  for slot = 1, lease.size do
    if held[tostring(slot)] then
      slots[#slots + 1] = slot
    end
  end
  return to_ranges(slots)
end

-- Read whatever a lease still holds: at most `limit` values, and no more once `max_bytes` are read. Also returns how
-- many of them are no slots.
local function read_leftovers(key, limit, max_bytes)
  local slots, entries, bytes, others, names = {}, {}, 0, 0, names_in(key)
  for i = 1, math.min(limit, #names) do
    if bytes < max_bytes then
      slots[i], entries[i] = names[i], redis.call('HGET', key, names[i])
      bytes, others = bytes + #entries[i], others + (is_slot(names[i]) and 0 or 1)
    end
  end
  return slots, entries, others
end
