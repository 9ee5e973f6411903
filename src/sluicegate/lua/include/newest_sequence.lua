--- @include block, numbers
-- The greatest sequence in sight, for a queue whose counter of it was overwritten: waiting messages keep their order. A
-- group has no `list`.
local function newest_sequence(list, zset)
  local last, values = 0, {list and redis.call('LINDEX', list, 0), redis.call('ZRANGE', zset, -1, -1)[1]}
  for _, value in pairs(values) do
    local stamp = value and string.match(value, '^[1-8](%x%x%x%x%x%x%x%x%x%x%x%x)')
    local block = stamp and read_block(value)
    local rank = block and (tonumber(string.match(block.ranks, '%d+$')) or block.count - 1) or 0
    last = math.max(last, tonumber(stamp or '0', 16) + rank)
  end
  return last
end

-- The last sequence that was given, which is the total of `published` messages unless that was overwritten.
local function last_sequence(counters, published, list, zset)
  local sequence = to_integer(published)
  if sequence <= 0 and published and published ~= '0' then
    sequence = math.max(to_integer(redis.call('HGET', counters, 'claimed')), newest_sequence(list, zset))
  end
  return sequence
end
