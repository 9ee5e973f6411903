-- Move the deadline of an open lease to now plus its lifetime.
-- Guarantee: only the consumer that has the token can, and never past the maximum lifetime of a lease.
-- KEYS:
--   1 lease
--   2 leases
-- ARGV:
--   1 name                 the lease's member in `leases`
--   2 token
--   3 lease_ms             new lifetime without a heartbeat
--   4 max_lease_ms         maximum lifetime since the opening or the last takeover, 0 for none
-- Returns: "ok"; "lost"; "over" when the lease has reached its maximum lifetime, which also limits what "ok" grants
-- Repeat: moves the deadline again. A lease that ended or that another consumer holds is never answered "ok".

--- @include clock, lease, oom_guard
oom_guard(leases)
local held = read_lease(lease)
if not held or held.token ~= token then
  return 'lost'
end
local ms, span, max_lease = math.floor(clock_us() / 1000), tonumber(lease_ms), tonumber(max_lease_ms)
if max_lease > 0 then
  span = math.min(span, held.since + max_lease - ms)
  if span <= 0 then
    return 'over'
  end
end
if held.span ~= span then
  held.span = span
  redis.call('HSET', lease, 'm', pack_lease(held))
end
redis.call('ZADD', leases, ms + span, name)
return 'ok'
