-- Slot ranges such as "1-3,5" are compact in records and arguments.
local MAX_RANGES_BYTES = 65536 -- a lease of ten thousand slots needs fewer

-- Returns stored ranges, or none where something else was written in their place, which might name endless slots.
local function valid_ranges(ranges)
  if not ranges or #ranges > MAX_RANGES_BYTES then
    return ''
  end
  return (string.find(ranges, '[^%d,-]') or string.find(ranges, '%d%d%d%d%d%d')) and '' or ranges
end

local function count_slots(ranges)
  local count = 0
  for first, last in string.gmatch(ranges, '(%d+)%-?(%d*)') do
    count = count + (tonumber(last) or tonumber(first)) - tonumber(first) + 1
  end
  return count
end
