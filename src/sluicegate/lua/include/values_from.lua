-- Returns `count` values of a source from the place `first` on, as places and values; fewer when the source ends.
local function values_from(kind, source, dead_records, mark, first, count)
  local places, values = {}, {}
  if kind == 'newest' then
    values = redis.call('LRANGE', source, first, first + count - 1)
    for i = 1, #values do
      places[i] = first + i - 1
    end
  elseif kind == 'oldest' then
    local batch = redis.call('LRANGE', source, -(first + count), -(first + 1))
    for i = #batch, 1, -1 do
      places[#places + 1], values[#values + 1] = first, batch[i]
    end
  else
    local batch = redis.call('ZRANGE', source, first, first + count - 1, 'WITHSCORES')
    for i = 1, #batch, 2 do
      if kind == 'zset' then
        places[#places + 1], values[#values + 1] = batch[i + 1], batch[i]
      elseif tonumber(batch[i + 1]) <= tonumber(mark) then
        places[#places + 1], values[#values + 1] = batch[i], redis.call('HGET', dead_records, batch[i]) or ''
      end
    end
  end
  return places, values
end
