-- Move the deadline of an open lease to now plus its span.
-- Guarantee: only the holder of the token can, and never past the longest life of a lease.
-- KEYS:
--   1 lease
--   2 leases
-- ARGV:
--   1 name           the lease's member in `leases`
--   2 token
--   3 span_ms        new life without a heartbeat
--   4 max_lease_ms     longest life since the opening or the last takeover, 0 for no bound
-- Returns: "ok", "lost", or "over" when the lease has reached its longest life; what is left of that is the most that is granted
-- Repeat: moves the deadline again; a lease that is gone or in another hand is never answered "ok".

--- @include clock
--- @include oom_guard
--- @include lease
oom_guard(KEYS[2])
local lease = read_lease(KEYS[1])
if not lease or lease.token ~= ARGV[2] then
  return 'lost'
end
local ms, span, longest = math.floor(clock_us() / 1000), tonumber(ARGV[3]), tonumber(ARGV[4])
if longest > 0 then
  span = math.min(span, lease.since + longest - ms)
  if span <= 0 then
    return 'over'
  end
end
if lease.span ~= span then
  lease.span = span
  redis.call('HSET', KEYS[1], 'm', pack_lease(lease))
end
redis.call('ZADD', KEYS[2], ms + span, ARGV[1])
return 'ok'
