-- Expire leases of one consumer now, so that the next claim returns what it held.
-- Guarantee: expires only leases that this consumer claimed or took over last.
-- KEYS:
--   1 leases
--   2 wakeup
--   3... lease             the hashes of the leases in `names`
-- ARGV:
--   1 consumer
--   2... names             the members in `leases`
-- Returns: messages in the leases that expired with this call
-- Repeat: expires those that the consumer has by then.

--- @include clock, lease, oom_guard, wakeup
oom_guard(leases)
local tokens, ms, count = redis.call('LLEN', wakeup), math.floor(clock_us() / 1000), 0
for i = names_at, #ARGV do
  local key = KEYS[lease_at + i - names_at]
  local deadline = tonumber(redis.call('ZSCORE', leases, ARGV[i]))
  local held = deadline and deadline > ms and redis.call('HGET', key, 'by') == consumer and read_lease(key)
  if held then
    redis.call('ZADD', leases, ms, ARGV[i])
    count = count + held.held
  end
end
if count > 0 then
  wake_consumer(wakeup, tokens)
end
return count
