-- Free a deduplication key, whatever message holds it.
-- Guarantee: deletes the marker only while it names the owner that a first call reported, so that a late call frees no
--   key that another message took since.
-- KEYS:
--   1 counters
--   2 leases
--   3... buckets           of the marker of the key
-- ARGV:
--   1 owner                id of the message that holds the key, "" to ask for it
--   2 known_chain          the chain of marker generations that the client knows
--   3 fields               of the marker
-- Returns: {id of the message that holds or held the key, "" for none}; {"chain", chain} when the marker is elsewhere
--   by now
-- Repeat: finds another owner or none, and leaves it alone.

--- @include named_markers, oom_guard
oom_guard(leases)
local markers, moved = named_markers(counters, known_chain, '', fields, KEYS, buckets_at)
if moved then
  return moved
end
local found = markers.owners[1] or ''
if found ~= '' and found == owner then
  markers.free(1, string.match(owner, '^[^\31]*'))
  markers.flush()
end
return {found}
