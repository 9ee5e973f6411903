--- @include end_marker, entry, marker_owners, ranges
-- Deduplication markers that end with their message: those of the slots in `bound`, in the keys from `first` on. Only
-- the message that owns a marker frees it or prolongs it, so a marker that another message took over is left alone.
-- `stream` and `group` are those of a group, which shares its markers with the others of its stream; "" for a queue.
local SAFETY_MS = 604800000 -- a marker that nothing frees expires after seven days

local function markers_of(keys, bound, first, stream, group)
  if bound == '' then
    return nil
  end
  local self, key_at, owners, freed, at = {}, {}, {}, {}, 0
  local owner_at = marker_owners(keys, first)
  each_slot(bound, function(slot)
    key_at[slot], owners[slot], at = keys[first + at], owner_at[at + 1], at + 1
  end)

  local function owned(slot, entry)
    local owner = owners[slot]
    if group ~= '' then
      owner = owner and string.match(owner, '^[^\31]*')
    end
    return owner and owner == id_of(entry) and key_at[slot]
  end

  function self.free(slot, entry)
    if group == '' then
      freed[#freed + 1] = owned(slot, entry) or nil
    elseif key_at[slot] then
      end_marker(key_at[slot], owners[slot], id_of(entry), stream, group)
    end
  end

  function self.prolong(slot, entry, delay)
    local key = owned(slot, entry)
    local left = key and redis.call('PTTL', key) or -1
    if left >= 0 and left < delay + SAFETY_MS then
      redis.call('PEXPIRE', key, delay + SAFETY_MS)
    end
  end

  function self.write()
    for from = 1, #freed, 1000 do
      redis.call('DEL', unpack(freed, from, math.min(from + 999, #freed)))
    end
    freed = {}
  end

  return self
end
