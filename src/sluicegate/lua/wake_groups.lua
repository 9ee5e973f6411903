-- Wake a consumer of each of these groups.
-- Guarantee: changes nothing but wake-ups.
-- KEYS:
--   1... wakeups
-- ARGV:
-- Returns: number of groups
-- Repeat: wakes them once more.

--- @include wakeup
local tokens = {}
for at = wakeups_at, #KEYS do
  tokens[at] = redis.call('LLEN', KEYS[at])
end
for at = wakeups_at, #KEYS do
  redis.call('LREM', KEYS[at], 0, '') -- counts as a write that is always allowed, so a full Redis wakes consumers too
  wake_consumer(KEYS[at], tokens[at])
end
return #KEYS
