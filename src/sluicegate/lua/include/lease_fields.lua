-- The fields of a lease's hash, whatever its packed field says.
local BOOKKEEPING = {
  m = true, by = true, tracked = true, fenced = true, left = true, from = true, returned = true, buried = true,
  blocks = true,
}

-- The names of all fields except the bookkeeping.
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

-- The slots that a lease really holds outside its `blocks`, in no order.
local function single_slots(key, blocks)
  local names, packed, slots = names_in(key), {}, {}
  for i = 1, #blocks do
    for slot = blocks[i].first, blocks[i].last do
      packed[slot] = true
    end
  end
  for i = 1, #names do
    local slot = is_slot(names[i]) and tonumber(names[i])
    if slot and not packed[slot] then
      slots[#slots + 1] = slot
    end
  end
  return slots
end

-- How many slots a lease really holds.
local function count_held_slots(key, blocks)
  local count = #single_slots(key, blocks)
  for i = 1, #blocks do
    count = count + blocks[i].last - blocks[i].first + 1
  end
  return count
end
