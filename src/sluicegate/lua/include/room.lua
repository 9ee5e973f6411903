--- @include packed
-- How many more messages may wait where `max_length` is the maximum, 0 for any number; how many wait that are never
-- dropped; and how many wait in all. `values` are those of `pending`.
local function room_for(max_length, values, returned, delayed, counters)
  if max_length == 0 then
    return math.huge, 0, values
  end
  local kept = redis.call('ZCARD', returned) + redis.call('ZCARD', delayed)
  local pending = count_pending(values, redis.call('HGET', counters, 'packed'))
  return math.max(0, max_length - pending - kept), kept, pending + kept
end
