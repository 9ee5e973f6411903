-- Redis refuses a script for memory only before its first write. Removing a member that never exists counts as a write
-- and is always allowed, so a full Redis can still be drained and open leases can still be extended.
local function oom_guard(zset)
  redis.call('ZREM', zset, '')
end
