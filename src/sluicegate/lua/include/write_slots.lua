-- Write the slots of a new lease, and the name of its consumer, "" for none.
local function write_slots(key, packed, entries, consumer)
  local fields, count = {'m', packed}, 2
  if consumer ~= '' then
    fields[3], fields[4], count = 'by', consumer, 4
  end
  for slot = 1, #entries do
    -- `#fields` would search for its end each time.
    fields[count + 1], fields[count + 2], count = slot, entries[slot], count + 2
    if count >= 2000 then
      redis.call('HSET', key, unpack(fields, 1, count))
      count = 0
    end
  end
  if count > 0 then
    redis.call('HSET', key, unpack(fields, 1, count))
  end
end
