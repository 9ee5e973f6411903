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
--   or -1, messages of the given leases that are expired, mark and deadline of the last lease of the next page, {names on that page},
--   values set aside}
-- Repeat: reads again.

--- @include clock
--- @include numbers
--- @include entry
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
local expired = 0
if #ARGV > 4 then
--- @include lease
  for i = 5, #ARGV do
    local deadline, key = tonumber(redis.call('ZSCORE', KEYS[4], ARGV[i])), KEYS[i + 2]
    if deadline and deadline <= tonumber(mark) then
      -- The two numbers that matter, in half the time that all of it takes.
      local held, enqueued_ms = string.match(redis.call('HGET', key, 'm') or '', '^%S+ %d+ %d+ %d+ %d+ (%d+) %d+ (%d+) ')
      if not held or #held > 5 then -- more than any lease of ours holds
        local lease = read_lease(key) or {}
        held, enqueued_ms = lease.held or 0, lease.oldest or oldest
      end
      expired = expired + tonumber(held)
      oldest = math.min(oldest, tonumber(enqueued_ms))
    end
  end
end

local names, score = {}, ''
if #ARGV > 1 or redis.call('ZCOUNT', KEYS[4], '-inf', mark) > 0 then
--- @include lease_page
  names, score = lease_page(KEYS[4], mark, tonumber(ARGV[1]), ARGV[3], ARGV[4])
end
local totals = redis.call('HMGET', KEYS[6], 'in_flight', 'published', 'claimed', 'paused', 'set_aside')
return {
  redis.call('LLEN', KEYS[1]), redis.call('ZCARD', KEYS[2]), redis.call('ZCARD', KEYS[3]),
  redis.call('ZCOUNT', KEYS[3], '-inf', ms), redis.call('ZCARD', KEYS[4]), redis.call('ZCARD', KEYS[5]),
  totals[4] and 1 or 0, to_integer(totals[1]), to_integer(totals[2]), to_integer(totals[3]),
  oldest > ms and -1 or ms - math.max(0, oldest), expired, #names > 0 and mark or '', score, names,
  to_integer(totals[5]),
}
