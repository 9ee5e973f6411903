-- Read a counter or a stamp as a number. A value that is no integer was written from outside: it counts as 0 and stops
-- nothing.
local function to_integer(value)
  local number = tonumber(value or 0) -- `inf % 1` is no number either
  return number and number % 1 == 0 and number < 1e15 and number > -1e15 and number or 0
end
