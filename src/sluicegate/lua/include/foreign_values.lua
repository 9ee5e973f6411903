--- @include count_up, dead, entry
-- Foreign values are stored values that are no messages of this version.

-- Whether a value has the shape of a message of a newer version, whose kind this version does not know.
local function is_newer(value)
  local _, digits = string.find(value, '^[^12345678\31]%x*')
  return digits ~= nil and digits >= 29 and string.find(value, PARTS, 30) ~= nil
end

-- Keep a foreign value where it stops nothing: set a newer version's message aside until an upgrade, bury any other
-- value unchanged. `to` holds the keys `aside`, `dead`, `records` and `counters`. Returns how many values were set
-- aside, and how many were buried.
local function store_foreign(to, ms, value)
  if is_newer(value) then
    count_up(to.counters, 'set_aside', redis.call('ZADD', to.aside, ms, value))
    return 1, 0
  end
  local id = 'foreign-' .. count_up(to.counters, 'foreign', 1)
  if redis.call('HEXISTS', to.records, id) == 1 then -- the counter started again
    id = id .. '-' .. redis.sha1hex(value)
  end
  bury(to.dead, to.records, ms, value, id, 'foreign\31\31')
  return 0, 1
end

-- The keys that take foreign values, as `store_foreign` takes them. Reads them, so that a key of another type stops the
-- script before it writes.
local function foreign_stores(aside, dead, records, counters)
  redis.call('ZCARD', dead)
  redis.call('HLEN', records)
  redis.call('ZCARD', aside)
  return {aside = aside, dead = dead, records = records, counters = counters}
end

-- Store foreign values, or move them to the tail of the list `tail`, if given, except messages of a newer version.
-- Returns how many values were moved, buried and set aside.
local function clear_foreign(to, ms, values, tail)
  local moved, buried, aside = 0, 0, 0
  for i = 1, #values do
    if tail and not is_newer(values[i]) then
      redis.call('LPUSH', tail, values[i])
      moved = moved + 1
    else
      local newer, other = store_foreign(to, ms, values[i])
      aside, buried = aside + newer, buried + other
    end
  end
  return moved, buried, aside
end
