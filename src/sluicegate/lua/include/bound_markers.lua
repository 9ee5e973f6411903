--- @include end_marker, entry, marker_chain, marker_changes, markers, ranges
-- Deduplication markers that end with their message: those of the slots in `bound`, whose keys are among the `markers`.
-- Only the message that owns a marker frees it or prolongs it, so a marker that another message took over is left
-- alone. `stream` and `group` are those of a group, which shares its markers with the others of its stream; "" for a
-- queue. `groups` are those of a settle, which may delay messages. Returns nil without such slots, and then an answer
-- where the client must call again.
local SAFETY_MS = 604800000 -- a marker that nothing frees expires after seven days

local function bound_markers(bound, counters, known_chain, plan, fields, keys, first, ms, stream, group, groups, from)
  if bound == '' then
    return nil
  end
  local chain, answer = chain_of(counters, redis.call('HGET', counters, 'markers'), known_chain)
  for i = from, chain and #groups or 0, 5 do
    local delay = tonumber(groups[i + 2])
    answer = answer or delay > 0 and chain.ensure(ms, delay + SAFETY_MS) or nil
  end
  if answer then
    return nil, answer
  end
  local markers = with_changes(markers_in(plan, fields, keys, first, ms, chain), chain)
  local self, places, at = {}, {}, 0
  each_slot(bound, function(slot)
    at = at + 1
    places[slot] = markers.rank and markers.rank[at] or at
  end)

  function self.free(slot, entry)
    if places[slot] then
      end_marker(markers, places[slot], id_of(entry), stream, group)
    end
  end

  function self.prolong(slot, entry, delay)
    local place = places[slot]
    local owner, id = place and markers.owners[place], id_of(entry)
    if owner and string.match(owner, '^[^\31]*') == id then
      markers.hold(place, id, owner, delay + SAFETY_MS)
    end
  end

  self.write = markers.flush
  return self
end
