-- Free a deduplication key, whatever message holds it.
-- Guarantee: the marker goes only while it names the owner that a first call told, so that a late call frees no key that was taken since.
-- KEYS:
--   1 marker         of the key
--   2 leases
-- ARGV:
--   1 owner          id of the message that holds the key, "" to be told it
-- Returns: id of the message that holds or held the key, "" for none
-- Repeat: finds another owner or none, and leaves it alone.

--- @include oom_guard
oom_guard(KEYS[2])
local owner = redis.call('GET', KEYS[1]) or ''
if owner ~= '' and owner == ARGV[1] then
  redis.call('DEL', KEYS[1])
end
return owner
