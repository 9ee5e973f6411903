--- @include block, count_up, numbers
-- The counter `packed` says how many more messages than values `pending` holds, because a block is one value of several
-- messages. It is raised before a block is stored and lowered after one is removed: a script that is stopped in between
-- leaves it too high, and never too low. An empty list holds nothing, whatever the counter says.
local function count_pending(values, packed)
  return values > 0 and values + math.max(0, to_integer(packed)) or 0
end

local function lower_packed(counters, by)
  if by > 0 and count_up(counters, 'packed', -by) < 0 then
    redis.call('HSET', counters, 'packed', 0)
  end
end

-- How many messages a value is: a foreign one counts as one.
local function messages_in(value)
  local block = read_block(value)
  return block and block.count or 1
end
