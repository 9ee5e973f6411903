-- The slots of a new lease.
local function write_slots(key, packed, entries)
  local fields = {'m', packed}
  for slot = 1, #entries do
    fields[#fields + 1] = slot
    fields[#fields + 1] = entries[slot]
    if #fields >= 2000 then
      redis.call('HSET', key, unpack(fields))
      fields = {}
    end
  end
  if #fields > 0 then
    redis.call('HSET', key, unpack(fields))
  end
end
