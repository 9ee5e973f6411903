-- Free a deduplication key, whatever message holds it.
-- Guarantee: deletes the marker only while it names the owner that a first call reported, so that a late call frees no
--   key that another message took since.
-- KEYS:
--   1 marker               of the key
--   2 leases
-- ARGV:
--   1 owner                id of the message that holds the key, "" to ask for it
-- Returns: id of the message that holds or held the key, "" for none
-- Repeat: finds another owner or none, and leaves it alone.

--- @include oom_guard
oom_guard(leases)
local found = redis.call('GET', marker) or ''
if found ~= '' and found == owner then
  redis.call('DEL', marker)
end
return found
