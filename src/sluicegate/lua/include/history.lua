-- A capped list of records with the newest at the left. Returns nil when `cap` is below 0; a cap of 0 keeps all
-- records.
local function history(key, cap)
  if cap < 0 then
    return nil
  end
  redis.call('LLEN', key)
  local self, records = {cap = cap}, {}

  function self.add(record)
    records[#records + 1] = record
  end

  -- After the cap was lowered, each write drops at most 1,000 more records than it adds.
  function self.write()
    local count, length = #records, 0
    for first = cap > 0 and math.max(1, count - cap + 1) or 1, count, 1000 do
      length = redis.call('LPUSH', key, unpack(records, first, math.min(first + 999, count)))
    end
    local over = cap > 0 and math.min(length - cap, count + 1000) or 0
    if over > 0 then
      redis.call('LTRIM', key, 0, -(over + 1))
    end
    records = {}
  end

  return self
end
