-- The message ids in the deduplication markers that are held, by position, from `start` on among the keys. MGET answers
-- nil for a key of another type, which a write would replace; STRLEN refuses such a key.
local function marker_owners(keys, start)
  local owners = {}
  for first = start, #keys, 1000 do
    local last = math.min(first + 999, #keys)
    local held = redis.call('EXISTS', unpack(keys, first, last))
    local found = held > 0 and redis.call('MGET', unpack(keys, first, last)) or {}
    for i = 1, #found do
      if found[i] then
        owners[first - start + i] = found[i]
        held = held - 1
      end
    end
    if held > 0 then
      for i = first, last do
        redis.call('STRLEN', keys[i])
      end
    end
  end
  return owners
end
