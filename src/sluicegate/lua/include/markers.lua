--- @include unpacked
-- The markers of some keys, in all generations of the chain: `plan`, `fields` and the buckets, in `keys` from `first`
-- on, are as the client's MarkerChain made them; a caller that knows the `count` of the fields saves counting them. A
-- marker's value is its expiry in ms as 12 hex digits, then its owner; it is held until then. HMGET refuses a bucket of
-- another type, before anything is written.
local function markers_in(plan, fields, keys, first, ms, chain, count)
  count = count or select(2, string.gsub(fields, '%z', ''))
  local names = unpacked('s', fields, count, 1)
  local owners, runs, values, order, rank, at = {}, {}, {}, nil, nil, 1
  local generations = chain.text == '' and 1 or #chain.generations
  if plan ~= '' then
    order, at = unpacked('H', plan, count, at)
    rank = {}
    for place = 1, count do
      rank[order[place] + 1] = place
    end
  end
  for g = 1, generations do
    local run, total, from = {}, {1}, 1
    local lengths = {count}
    if plan ~= '' then
      total, at = unpacked('H', plan, 1, at)
      lengths, at = unpacked('H', plan, total[1], at)
    end
    for i = 1, total[1] do
      run[i] = {key = keys[first], from = from, to = from + lengths[i] - 1}
      first, from = first + 1, from + lengths[i]
    end
    runs[g], values[g] = run, {}
  end

  -- Read one bucket; what a newer generation holds counts.
  local function read(found, one)
    for from = one.from, one.to, 1000 do
      local some = redis.call('HMGET', one.key, unpack(names, from, math.min(from + 999, one.to)))
      for i = 1, #some do
        local value = some[i]
        if value then
          local place = from + i - 1
          found[place] = value
          if not owners[place] and (tonumber(string.sub(value, 1, 12), 16) or 0) > ms then
            owners[place] = string.sub(value, 13)
          end
        end
      end
    end
  end

  for g = generations, 1, -1 do
    local run, exist = runs[g], 0
    for from = 1, #run, 1000 do
      local named = {}
      for i = from, math.min(from + 999, #run) do
        named[#named + 1] = run[i].key
      end
      exist = exist + redis.call('EXISTS', unpack(named))
    end
    run.exist = exist == #run
    for i = 1, exist > 0 and #run or 0 do
      read(values[g], run[i])
    end
  end
  -- `names` and `owners` are by place among the fields; `rank` gives the place of a key by its position, nil if equal.
  local self = {names = names, owners = owners, rank = rank, runs = runs, values = values}
  self.count, self.ms = count, ms
  return self
end
