-- Keep the heartbeat of a driver of a run, or remove it, and list the other drivers of the run that are alive.
-- Guarantee: a driver whose last call is older than its `life_ms` is not listed, and the record of a run whose drivers
--   are silent expires.
-- KEYS:
--   1 leases
--   2 drivers              the drivers of the run by their nonce
-- ARGV:
--   1 nonce                of the driver
--   2 life_ms              how long its heartbeat counts; 0: the driver has ended
--   3 place                where it runs, for others to read
-- Returns: {when the driver began in microseconds or 0 once it has ended, then of each other driver: nonce, when it
--   began, until when its heartbeat counts in ms, place}
-- Repeat: the same answer; a call that arrives late lets the driver seem alive for `life_ms` more.

--- @include clock, oom_guard
local MAX_DRIVERS = 64 -- far more than there ever are at a time; a record that was written from outside is dropped
life_ms = tonumber(life_ms)

oom_guard(leases)
local began = clock_us()
local now = math.floor(began / 1000)
local last, others = now + life_ms, {}
if redis.call('HLEN', drivers) > MAX_DRIVERS then
  redis.call('DEL', drivers)
end
local kept = redis.call('HGETALL', drivers)
for i = 1, #kept, 2 do
  local since, until_ms, other = string.match(kept[i + 1], '^(%d+) (%d+) (.*)$')
  if not since or tonumber(until_ms) <= now then
    redis.call('HDEL', drivers, kept[i])
  elseif kept[i] == nonce then
    began = tonumber(since)
  else
    last = math.max(last, tonumber(until_ms))
    others[#others + 1] = kept[i]
    others[#others + 1] = tonumber(since)
    others[#others + 1] = tonumber(until_ms)
    others[#others + 1] = other
  end
end
if life_ms > 0 then
  redis.call('HSET', drivers, nonce, string.format('%.0f %.0f %s', began, now + life_ms, place))
  redis.call('PEXPIRE', drivers, last - now)
else
  redis.call('HDEL', drivers, nonce)
  began = 0
end
return {began, unpack(others)}
