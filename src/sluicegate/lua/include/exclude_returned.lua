-- Which entries of a batch a run has noted: what it gave back itself, and will not take again. Only what was leased before can be among them.
local function returned_by(run)
  return function(batch)
    local ids, places, left = {}, {}, {}
    for i = 1, #batch do
      if is_entry(batch[i]) and was_leased(batch[i]) then
        ids[#ids + 1], places[#places + 1] = id_of(batch[i]), i
      end
    end
    local noted = #ids > 0 and redis.call('SMISMEMBER', run, unpack(ids)) or {}
    for i = 1, #noted do
      left[places[i]] = noted[i] == 1
    end
    return left
  end
end
