-- Count a queue's messages by state.
-- Guarantee: reads only, and costs the same at any size; expired leases are counted a page at a time.
-- KEYS:
--   1 pending
--   2 returned
--   3 delayed
--   4 leases
--   5 dead
--   6 counters
--   7... expired      the hashes of the leases that the answer before named
-- ARGV:
--   1 most           expired leases that a page names
--   2 mark           leases whose deadline is later, in ms, are not counted; this and the following with `expired` only
--   3 score          deadline of the last lease that was named
--   4 after          its member in `leases`
--   5... name        the members in `leases` of those hashes
-- Returns: {pending, returned, delayed, due, leases, dead, paused, in flight, published, claimed, age of the oldest ready message in ms
--   or -1, messages of the given leases that are expired, mark and deadline of the last lease of the next page, {names on that page}}
-- Repeat: reads again.

--- @include clock
--- @include entry
--- @include lease
local ms = math.floor(clock_us() / 1000)
local mark = ARGV[2] or string.format('%.0f', ms)
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
local expired, deadlines = 0, ARGV[5] and redis.call('ZMSCORE', KEYS[4], unpack(ARGV, 5)) or {}
for i = 1, #deadlines do
  if deadlines[i] and tonumber(deadlines[i]) <= tonumber(mark) then
    local held, enqueued_ms = held_and_oldest(KEYS[6 + i])
    expired = expired + held
    oldest = math.min(oldest, enqueued_ms or oldest)
  end
end

-- The next page begins behind the lease that was named last, or where that one stood when it has gone or lives again; then a lease may be
-- named twice, but none is left out.
local first, last = 0, redis.call('ZCOUNT', KEYS[4], '-inf', mark) - 1
if ARGV[4] then
  local score = tonumber(redis.call('ZSCORE', KEYS[4], ARGV[4]))
  first = score == tonumber(ARGV[3]) and redis.call('ZRANK', KEYS[4], ARGV[4]) + 1 or redis.call('ZCOUNT', KEYS[4], '-inf', '(' .. ARGV[3])
end
local page = first <= last and redis.call('ZRANGE', KEYS[4], first, math.min(first + tonumber(ARGV[1]) - 1, last)) or {}
local totals = redis.call('HMGET', KEYS[6], 'in_flight', 'published', 'claimed', 'paused')
return {
  redis.call('LLEN', KEYS[1]), redis.call('ZCARD', KEYS[2]), redis.call('ZCARD', KEYS[3]),
  redis.call('ZCOUNT', KEYS[3], '-inf', ms), redis.call('ZCARD', KEYS[4]), redis.call('ZCARD', KEYS[5]),
  totals[4] and 1 or 0, tonumber(totals[1] or 0), tonumber(totals[2] or 0), tonumber(totals[3] or 0),
  oldest > ms and -1 or ms - oldest, expired, #page > 0 and mark or '', #page > 0 and redis.call('ZSCORE', KEYS[4], page[#page]) or '', page,
}
