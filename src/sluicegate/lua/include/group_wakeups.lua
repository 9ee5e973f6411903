--- @include wakeup
-- The wake-ups of a stream's groups: those that are named, each by a key and a name. `ring` wakes a consumer of each
-- named group that exists; `others` names all groups when some exist that are not named, or the other way round.
local function group_wakeups(stream, keys, keys_at, names, names_at, count)
  local self, found, waiting, exact = {}, {}, {}, true
  local groups = redis.call('EXISTS', stream) == 1 and redis.call('XINFO', 'GROUPS', stream) or {}
  for i = 1, #groups do
    found[i] = groups[i][2]
    waiting[groups[i][2]] = true
  end
  local rung = {}
  for i = 0, count - 1 do
    if waiting[names[names_at + i]] then
      rung[#rung + 1] = {keys[keys_at + i], redis.call('LLEN', keys[keys_at + i])}
    else
      exact = false
    end
  end
  if not exact or #rung < #groups then
    self.others = found
  end

  function self.ring()
    for i = 1, #rung do
      wake_consumer(rung[i][1], rung[i][2])
    end
  end

  return self
end
