-- Read the slots of a lease from `first` to `last` that are still held, ascending, with their entries: at most `limit`,
-- and no more once `max_bytes` are read.
local function read_slots(key, first, last, limit, max_bytes)
  local slots, entries, bytes, chunk = {}, {}, 0, 1
  while first <= last and #slots < limit and bytes < max_bytes do
    local names = {}
    for slot = first, math.min(first + chunk - 1, last, first + limit - #slots - 1) do
      names[#names + 1] = slot
    end
    local found = redis.call('HMGET', key, unpack(names))
    for i = 1, #names do
      if found[i] then
        slots[#slots + 1] = names[i]
        entries[#entries + 1] = found[i]
        bytes = bytes + #found[i]
      end
    end
    -- The size of the entries so far limits the next chunk, so that a step reads little more than it may.
    local fitting = bytes > 0 and math.ceil((max_bytes - bytes) * #slots / bytes) or math.huge
    first, chunk = first + #names, math.max(1, math.min(chunk * 4, 1000, fitting))
  end
  return slots, entries
end
