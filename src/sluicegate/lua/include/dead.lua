--- @include count_up
-- A dead record holds the burial time, reason, error type, error text and entry, separated by US. `why` is "reason US
-- type US text".
local function bury(dead, records, ms, entry, id, why)
  redis.call('HSET', records, id, string.format('%.0f', ms) .. '\31' .. why .. '\31' .. entry)
  redis.call('ZADD', dead, ms, id)
end

-- Keep at most `max_length` dead messages (0: all). The oldest are dropped and counted, by the `tally` too, which a
-- script with a maximum has. After the cap was lowered, each call drops at most 1,000 more than were buried.
local function trim_dead(dead, records, counters, max_length, buried, tally)
  local over = max_length > 0 and buried > 0 and math.min(redis.call('ZCARD', dead) - max_length, buried + 1000) or 0
  if over <= 0 then
    return 0
  end
  for first = 0, over - 1, 1000 do
    local ids = redis.call('ZRANGE', dead, first, math.min(first + 999, over - 1))
    redis.call('HDEL', records, unpack(ids))
    tally.dropped_dead(ids)
  end
  redis.call('ZREMRANGEBYRANK', dead, 0, over - 1)
  count_up(counters, 'dead_dropped', over)
  return over
end
