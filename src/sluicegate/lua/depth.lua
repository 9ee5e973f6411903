-- Count a queue's messages by state.
-- Guarantee: reads only, and costs the same at any size.
-- KEYS:
--   1 pending
--   2 returned
--   3 delayed
--   4 leases
--   5 dead
--   6 counters
--   7... expired      the hashes of leases that a first answer named as expired
-- ARGV:
--   1... name         the members in `leases` of those hashes
-- Returns: {pending, returned, delayed, due, leases, dead, paused, in flight, published, claimed, age of the oldest ready message in ms
--   or -1, messages of the named leases that are expired, names of expired leases (at most 1000) when none were given}
-- Repeat: reads again.

--- @include clock
--- @include entry
--- @include lease
local ms = math.floor(clock_us() / 1000)
local oldest = ms + 1

local function see(entry)
  if entry and is_entry(entry) then
    oldest = math.min(oldest, enqueued_ms_of(entry))
  end
end

see(redis.call('LINDEX', KEYS[1], -1))
see(redis.call('ZRANGE', KEYS[2], 0, 0)[1])
local first_due = redis.call('ZRANGEBYSCORE', KEYS[3], '-inf', ms, 'WITHSCORES', 'LIMIT', 0, 1)[2]
oldest = math.min(oldest, tonumber(first_due) or oldest)
local expired, names = 0, {}
if #ARGV == 0 then
  names = redis.call('ZRANGEBYSCORE', KEYS[4], '-inf', ms, 'LIMIT', 0, 1000)
end
for i = 1, #ARGV do
  local deadline = tonumber(redis.call('ZSCORE', KEYS[4], ARGV[i]))
  local lease = deadline and deadline <= ms and read_lease(KEYS[6 + i])
  if lease then
    expired = expired + lease.held
    oldest = math.min(oldest, lease.oldest)
  end
end
local totals = redis.call('HMGET', KEYS[6], 'in_flight', 'published', 'claimed', 'paused')
return {
  redis.call('LLEN', KEYS[1]), redis.call('ZCARD', KEYS[2]), redis.call('ZCARD', KEYS[3]),
  redis.call('ZCOUNT', KEYS[3], '-inf', ms), redis.call('ZCARD', KEYS[4]), redis.call('ZCARD', KEYS[5]),
  totals[4] and 1 or 0, tonumber(totals[1] or 0), tonumber(totals[2] or 0), tonumber(totals[3] or 0),
  oldest > ms and -1 or ms - oldest, expired, names,
}
