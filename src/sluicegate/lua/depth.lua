-- Count a queue's messages by state.
-- Guarantee: reads only, and costs the same at any size; expired leases are counted a page at a time.
-- KEYS:
--   1 pending              a list; of a group, its stream
--   2 returned
--   3 delayed
--   4 leases
--   5 dead
--   6 counters
--   7... expired           the hashes of the leases that the previous answer named
-- ARGV:
--   1 max_leases           expired leases that a page names
--   2 group                the name of the group of a stream, "" for a queue
--   3 all_totals           "1" to answer with the queue's totals, too
--   4 mark                 leases with a later deadline in ms are not counted; this and the following with `expired`
--                        only
--   5 score                deadline of the last lease that was named
--   6 after                its member in `leases`
--   7... name              the members in `leases` of those hashes
-- Returns: {pending, returned, delayed, due, leases, dead, paused, in flight, published, claimed, age of the oldest
--   ready message in ms or -1, expired messages of the given leases, mark and deadline of the last lease of the next
--   page, {names on that page}, messages set aside, ms until the first delayed message falls due or -1, ms until the
--   first lease expires or -1, {name, total, name, total, ...} if they were asked for}; both times are 0 once that has
--   happened
-- Repeat: reads again.

--- @include block, clock, entry, layout, lease, lease_page, numbers, packed, unread
local ms = math.floor(clock_us() / 1000)
local first_page = not mark
mark = mark or string.format('%.0f', ms)
local oldest = ms + 1

local function consider(entry)
  if entry and (is_entry(entry) or is_block(entry)) then
    oldest = math.min(oldest, enqueued_ms_of(entry))
  end
end

local totals = redis.call('HMGET', counters, 'in_flight', 'published', 'claimed', 'paused', 'set_aside', 'packed',
  'layout')
local newer = newer_layout(totals[7])
if newer then
  return newer
end
local unread, waiting = read_group(pending, group), nil
if unread then
  local first = first_unread(unread)
  waiting = first and count_unread(unread) or 0
  oldest = math.min(oldest, first and tonumber(string.match(first, '^%d+')) or oldest)
else
  consider(redis.call('LINDEX', pending, -1))
  waiting = count_pending(redis.call('LLEN', pending), totals[6])
end
consider(redis.call('ZRANGE', returned, 0, 0)[1])
local first_due = tonumber(redis.call('ZRANGE', delayed, 0, 0, 'WITHSCORES')[2])
local first_expiry = tonumber(redis.call('ZRANGE', leases, 0, 0, 'WITHSCORES')[2])
oldest = math.min(oldest, first_due or oldest)

local function ms_until(score)
  return score and score < LATEST and math.max(0, math.ceil(score - ms)) or -1
end

local count = 0
for i = name_at, #ARGV do
  local deadline, key = tonumber(redis.call('ZSCORE', leases, ARGV[i])), KEYS[expired_at + i - name_at]
  if deadline and deadline <= tonumber(mark) then
    -- Reads only the two numbers that matter, in half the time that all of them take.
    local packed = redis.call('HGET', key, 'm') or ''
    local held, enqueued_ms = string.match(packed, '^%S+ %d+ %d+ %d+ %d+ (%d+) %d+ (%d+) ')
    if not held or #held > 5 then -- more messages than any lease of this library holds
      local lease = read_lease(key) or {}
      held, enqueued_ms = lease.held or 0, lease.oldest or oldest
    end
    count = count + tonumber(held)
    oldest = math.min(oldest, tonumber(enqueued_ms))
  end
end

local names, last_score = {}, ''
if not first_page or first_expiry and first_expiry <= ms then
  names, last_score = lease_page(leases, mark, tonumber(max_leases), score, after)
end
return {
  waiting, redis.call('ZCARD', returned), redis.call('ZCARD', delayed),
  redis.call('ZCOUNT', delayed, '-inf', ms), redis.call('ZCARD', leases), redis.call('ZCARD', dead),
  totals[4] and 1 or 0, to_integer(totals[1]), to_integer(totals[2]) + (unread and waiting or 0),
  to_integer(totals[3]),
  oldest > ms and -1 or ms - math.max(0, oldest), count, #names > 0 and mark or '', last_score, names,
  to_integer(totals[5]), ms_until(first_due), ms_until(first_expiry),
  all_totals == '1' and redis.call('HGETALL', counters) or {},
}
