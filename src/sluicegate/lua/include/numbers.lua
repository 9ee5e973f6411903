-- Counters and stamps as numbers. What is none was written from outside: it counts as 0, and stops nobody.
local function to_integer(value)
  local number = tonumber(value or 0)
  return number and number % 1 == 0 and number < 1e15 and number > -1e15 and number or 0 -- `inf % 1` is no number either
end
