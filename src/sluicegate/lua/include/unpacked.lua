-- Unpack `count` values of one kind, as `struct` names kinds, from position `at` on. Returns them and the position that
-- follows.
local function unpacked(kind, packed, count, at)
  if count <= 1000 then
    local found = {struct.unpack('<' .. string.rep(kind, count), packed, at)}
    return found, table.remove(found)
  end
  local found, some = {}, nil
  for from = 1, count, 1000 do
    some, at = unpacked(kind, packed, math.min(1000, count - from + 1), at)
    for i = 1, #some do
      found[from + i - 1] = some[i]
    end
  end
  return found, at
end
