-- Redis refuses for memory only before a script's first write. Removing a member that never exists is such a write and is
-- always allowed, so a full Redis can still be drained and live leases still extended.
local function oom_guard(zset)
  redis.call('ZREM', zset, '')
end
