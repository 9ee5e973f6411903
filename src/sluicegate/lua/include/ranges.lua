-- Slot ranges such as "1-3,5": compact in records and arguments whatever they cover.
local MAX_RANGES = 65536 -- bytes of them; a lease of ten thousand slots needs fewer

-- Stored ranges, or none where something else was put in their place, which might name slots without end.
local function valid_ranges(ranges)
  local odd = not ranges or #ranges > MAX_RANGES or string.find(ranges, '[^%d,-]') or string.find(ranges, '%d%d%d%d%d%d')
  return odd and '' or ranges
end

local function each_slot(ranges, visit)
  for first, last in string.gmatch(ranges, '(%d+)%-?(%d*)') do
    for slot = tonumber(first), tonumber(last) or tonumber(first) do
      visit(slot)
    end
  end
end

local function count_slots(ranges)
  local count = 0
  for first, last in string.gmatch(ranges, '(%d+)%-?(%d*)') do
    count = count + (tonumber(last) or tonumber(first)) - tonumber(first) + 1
  end
  return count
end

local function slots_of(ranges)
  local slots, count = {}, 0
  each_slot(ranges, function(slot)
    count = count + 1
    slots[count] = slot
  end)
  return slots
end

local function slot_set(ranges)
  local set = {}
  each_slot(ranges, function(slot) set[slot] = true end)
  return set
end

-- `slots` ascending
local function to_ranges(slots)
  local parts, at = {}, 1
  while at <= #slots do
    local first, last = slots[at], slots[at]
    while slots[at + 1] == last + 1 do
      at, last = at + 1, slots[at + 1]
    end
    parts[#parts + 1] = first == last and tostring(first) or (first .. '-' .. last)
    at = at + 1
  end
  return table.concat(parts, ',')
end

local function joined(ranges, more)
  if ranges == '' or more == '' then
    return ranges .. more
  end
  return ranges .. ',' .. more
end
