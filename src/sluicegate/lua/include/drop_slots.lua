-- Remove slots from a lease; returns how many it held.
local function drop_slots(key, slots)
  local dropped = 0
  for first = 1, #slots, 1000 do
    dropped = dropped + redis.call('HDEL', key, unpack(slots, first, math.min(first + 999, #slots)))
  end
  return dropped
end
