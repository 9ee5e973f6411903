-- What is no message of this version is put where it stops nobody: what a newer version wrote is set aside, to be read after an upgrade, and
-- any other value is buried as it is. Answers how many were set aside, and how many buried.
local function store_foreign(aside, dead, records, counters, ms, value)
  if is_newer(value) then
    count_up(counters, 'set_aside', redis.call('ZADD', aside, ms, value))
    return 1, 0
  end
  local id = 'foreign-' .. count_up(counters, 'foreign', 1)
  if redis.call('HEXISTS', records, id) == 1 then -- the counter began anew
    id = id .. '-' .. redis.sha1hex(value)
  end
  bury(dead, records, ms, value, id, 'foreign\31\31')
  return 0, 1
end
