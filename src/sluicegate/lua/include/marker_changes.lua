-- Give markers that were read by `markers_in` the functions that free them and hold them.
local function with_changes(self, chain)
  local names, runs, values, ms, drops, firsts = self.names, self.runs, self.values, self.ms, {}, {}

  local function bucket(g, place)
    local run = runs[g]
    local low, high = 1, #run
    while low < high do
      local middle = math.floor((low + high) / 2)
      if run[middle].to < place then
        low = middle + 1
      else
        high = middle
      end
    end
    return run[low].key
  end

  local function drop(g, place)
    local named = bucket(g, place)
    drops[named] = drops[named] or {}
    table.insert(drops[named], names[place])
    values[g][place] = false
  end

  -- Visit the generations in which the message `id` owns a marker.
  local function each_own(place, id, visit)
    for g = 1, #values do
      local value = values[g][place]
      if value and string.match(value, '^[^\31]*', 13) == id then
        visit(g, value)
      end
    end
  end

  -- One place for all keys that are equal to that at a place.
  function self.first_place(place)
    firsts[names[place]] = firsts[names[place]] or place
    return firsts[names[place]]
  end

  -- Free a marker, wherever the message `id` owns it, with the next `flush`.
  function self.free(place, id)
    each_own(place, id, function(g) drop(g, place) end)
  end

  function self.flush()
    for named, gone in pairs(drops) do
      for from = 1, #gone, 1000 do
        redis.call('HDEL', named, unpack(gone, from, math.min(from + 999, #gone)))
      end
    end
    drops = {}
  end

  -- Change what follows the id in a marker that the message `id` owns; '' frees it.
  function self.rewrite(place, id, changed)
    each_own(place, id, function(g, value)
      local owner = changed(string.sub(value, 13))
      if owner == '' then
        drop(g, place)
      elseif owner then
        values[g][place] = string.sub(value, 1, 12) .. owner
        redis.call('HSET', bucket(g, place), names[place], values[g][place])
      end
    end)
    self.flush()
  end

  -- Hold a marker for at least `life` ms for the message `id`, with this owner. `chain.ensure` made sure of a
  -- generation for it; `other` is another one that keeps it so long.
  function self.hold(place, id, owner, life, other)
    local to, expiry = other or chain.place(ms, life), ms + life
    each_own(place, id, function(g, value)
      local known = tonumber(string.sub(value, 1, 12), 16) or 0
      if known >= expiry then
        to, expiry = g, known
      end
    end)
    local value = string.format('%012x', expiry) .. owner
    if values[to][place] ~= value then
      redis.call('HSET', bucket(to, place), names[place], value)
      redis.call('PEXPIREAT', bucket(to, place), string.format('%.0f', chain.generations[to].over))
    end
    values[to][place] = false
    each_own(place, id, function(g) drop(g, place) end)
    values[to][place] = value
    self.flush()
  end

  return self
end
