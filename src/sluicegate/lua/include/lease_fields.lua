-- The fields of a lease's hash, whatever its packed field says.
local BOOKKEEPING = {
  m = true, by = true, tracked = true, fenced = true, left = true, from = true, returned = true, buried = true,
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

-- How many slots a lease really holds.
local function count_held_slots(key)
  local count, names = 0, names_in(key)
  for i = 1, #names do
    count = count + (is_slot(names[i]) and 1 or 0)
  end
  return count
end
