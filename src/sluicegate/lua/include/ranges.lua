-- Slot ranges as slots, and slots as ranges.
local function each_slot(ranges, visit)
  for first, last in string.gmatch(ranges, '(%d+)%-?(%d*)') do
    for slot = tonumber(first), tonumber(last) or tonumber(first) do
      visit(slot)
    end
  end
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

-- `slots` must be ascending.
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
