-- Read values of another library's list, the oldest first.
-- Guarantee: reads only, in bounded steps.
-- KEYS:
--   1 list                 the oldest value is the rightmost one
-- ARGV:
--   1 offset               values to skip
--   2 count                maximum values
--   3 max_bytes            read no further value once this much is read
-- Returns: {values...}
-- Repeat: reads again.

local reply, bytes, at, limit, most = {}, 0, tonumber(offset), tonumber(count), tonumber(max_bytes)
while #reply < limit and bytes < most do
  local size = math.min(50, limit - #reply)
  local found = redis.call('LRANGE', list, -(at + size), -(at + 1))
  for i = #found, 1, -1 do
    reply[#reply + 1], bytes, at = found[i], bytes + #found[i], at + 1
  end
  if #found < size then
    break
  end
end
return reply
