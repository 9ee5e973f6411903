-- The server's clock is the only one that decides anything.
local function clock_us()
  local time = redis.call('TIME')
  return time[1] * 1000000 + time[2]
end
