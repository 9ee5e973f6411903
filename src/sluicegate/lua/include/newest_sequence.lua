-- The greatest sequence in sight, for a queue whose counter of it was overwritten: waiting messages keep their order.
local function newest_sequence(list, zset)
  local last, values = 0, {redis.call('LINDEX', list, 0), redis.call('ZRANGE', zset, -1, -1)[1]}
  for _, value in pairs(values) do
    last = math.max(last, value and tonumber(string.match(value, '^[12](%x%x%x%x%x%x%x%x%x%x%x%x)') or '0', 16) or 0)
  end
  return last
end
