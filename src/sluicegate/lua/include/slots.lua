-- The slots of an open lease.

-- The slots still held among `first` to `last` with their entries, ascending: at most `most`, and no more once `max_bytes` are read.
local function read_slots(key, first, last, most, max_bytes)
  local slots, entries, bytes, chunk = {}, {}, 0, 1
  while first <= last and #slots < most and bytes < max_bytes do
    local names = {}
    for slot = first, math.min(first + chunk - 1, last, first + most - #slots - 1) do
      names[#names + 1] = slot
    end
    local found = redis.call('HMGET', key, unpack(names))
    for i = 1, #names do
      if found[i] then
        slots[#slots + 1] = names[i]
        entries[#entries + 1] = found[i]
        bytes = bytes + #found[i]
      end
    end
    -- By what was read so far: a step never reads much more than it may.
    local fitting = bytes > 0 and math.ceil((max_bytes - bytes) * #slots / bytes) or math.huge
    first, chunk = first + #names, math.max(1, math.min(chunk * 4, 1000, fitting))
  end
  return slots, entries
end

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

-- The names of all fields of a lease but its own bookkeeping, whatever its size says.
local BOOKKEEPING = {m = true, fenced = true, left = true, from = true, returned = true, buried = true}
local function names_in(key)
  local found, names = redis.call('HKEYS', key), {}
  for i = 1, #found do
    if not BOOKKEEPING[found[i]] then
      names[#names + 1] = found[i]
    end
  end
  return names
end

local function is_slot(name)
  return string.find(name, '^%d+$') ~= nil
end

-- How many slots a lease holds, where its own count of them says none.
local function slots_in(key)
  local count, names = 0, names_in(key)
  for i = 1, #names do
    count = count + (is_slot(names[i]) and 1 or 0)
  end
  return count
end

-- Whatever a lease holds: at most `most`, and no more once `max_bytes` are read; and how many of it are no slots.
local function read_other_fields(key, most, max_bytes)
  local slots, entries, bytes, others, names = {}, {}, 0, 0, names_in(key)
  for i = 1, math.min(most, #names) do
    if bytes < max_bytes then
      slots[i], entries[i] = names[i], redis.call('HGET', key, names[i])
      bytes, others = bytes + #entries[i], others + (is_slot(names[i]) and 0 or 1)
    end
  end
  return slots, entries, others
end

local function drop_slots(key, slots)
  local dropped = 0
  for first = 1, #slots, 1000 do
    dropped = dropped + redis.call('HDEL', key, unpack(slots, first, math.min(first + 999, #slots)))
  end
  return dropped
end
