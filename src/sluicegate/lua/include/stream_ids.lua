-- Ids of entries of a stream, "<ms>-<number>", in their order. A part may have twenty digits, more than a Lua number
-- keeps, so parts are compared as text.
local function id_parts(id)
  return string.match(id, '^(%d+)%-(%d+)$')
end

local function is_less(one, other)
  return #one < #other or #one == #other and one < other
end

local function is_before(one, other)
  local ms, number = id_parts(one)
  local other_ms, other_number = id_parts(other)
  return is_less(ms, other_ms) or ms == other_ms and is_less(number, other_number)
end

-- The id behind another. For a number that Lua does not keep, the id itself.
local function id_behind(id)
  local ms, number = id_parts(id)
  return tonumber(number) < 9e15 and ms .. '-' .. string.format('%.0f', number + 1) or id
end
