--- @include entry
-- A run remembers which messages it returned, and its claims exclude them.

-- Returns a function that says which entries of a batch the run `run` has returned. Only entries that were leased
-- before can be among them.
local function returned_by(run)
  return function(batch)
    local ids, places, excluded = {}, {}, {}
    for i = 1, #batch do
      if is_entry(batch[i]) and was_leased(batch[i]) then
        ids[#ids + 1], places[#places + 1] = id_of(batch[i]), i
      end
    end
    local found = #ids > 0 and redis.call('SMISMEMBER', run, unpack(ids)) or {}
    for i = 1, #found do
      excluded[places[i]] = found[i] == 1
    end
    return excluded
  end
end

-- Delay excluded entries until `due_ms`, so that the next claim does not read them again.
local function delay_excluded(delayed, entries, due_ms)
  for first = 1, #entries, 1000 do
    local scored = {}
    for i = first, math.min(first + 999, #entries) do
      scored[#scored + 1], scored[#scored + 2] = due_ms, entries[i]
    end
    redis.call('ZADD', delayed, unpack(scored))
  end
end
