-- A dead record: time of burying, reason, error type, error text and the entry, separated by US. `why` is "reason US type US text".
local function bury(dead, records, ms, entry, id, why)
  redis.call('HSET', records, id, string.format('%.0f', ms) .. '\31' .. why .. '\31' .. entry)
  redis.call('ZADD', dead, ms, id)
end

-- Keep at most `most` dead letters (0: all): the oldest go, and are counted. A cap that was lowered is reached in steps of 1,000.
local function trim_dead(dead, records, counters, most, buried)
  local over = most > 0 and buried > 0 and math.min(redis.call('ZCARD', dead) - most, buried + 1000) or 0
  if over <= 0 then
    return 0
  end
  for first = 0, over - 1, 1000 do
    redis.call('HDEL', records, unpack(redis.call('ZRANGE', dead, first, math.min(first + 999, over - 1))))
  end
  redis.call('ZREMRANGEBYRANK', dead, 0, over - 1)
  count_up(counters, 'dead_dropped', over)
  return over
end
