-- A dead record: time of burying, reason, error type, error text and the entry, separated by US. `why` is "reason US type US text".
local function bury(dead, records, ms, entry, id, why)
  redis.call('HSET', records, id, string.format('%.0f', ms) .. '\31' .. why .. '\31' .. entry)
  redis.call('ZADD', dead, ms, id)
end
