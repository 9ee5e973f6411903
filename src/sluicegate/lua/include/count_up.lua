-- Add to a counter as HINCRBY does. The count starts again where the old value is no number, or is too large.
local function count_up(counters, name, by)
  local counted = redis.pcall('HINCRBY', counters, name, by)
  if type(counted) == 'number' then
    return counted
  end
  if string.find(counted.err, 'not an integer', 1, true) or string.find(counted.err, 'overflow', 1, true) then
    redis.call('HSET', counters, name, by)
    return by
  end
  return redis.call('HINCRBY', counters, name, by) -- refused for another reason: the error must stop the script
end
