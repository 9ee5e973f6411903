--- @include lease
-- The time in ms until the next message falls due or the next lease expires, -1 when neither is in sight.
local function next_change(delayed, leases, ms)
  local due = tonumber(redis.call('ZRANGE', delayed, 0, 0, 'WITHSCORES')[2])
  local expiry = tonumber(redis.call('ZRANGE', leases, 0, 0, 'WITHSCORES')[2])
  local next_ms = math.min(due or math.huge, expiry or math.huge) - ms
  return next_ms < LATEST and math.max(0, math.ceil(next_ms)) or -1
end
