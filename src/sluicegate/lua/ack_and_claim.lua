-- Ack the one message of a lease and open the next lease over the oldest pending message, each where that is plain: the
--   usual step of a consumer that handles one message at a time.
-- Guarantee: takes effect as ack_whole.lua and claim.lua do. What is not plain is left to them as it was.
-- KEYS:
--   1 lease                to open
--   2 leases
--   3 closed
--   4 pending
--   5 returned
--   6 delayed
--   7 counters
--   8 wakeup
--   9 last_lease           to ack
--  10 last_closed
-- ARGV:
--   1 name                 of the lease to open, as its member in `leases`; "" to open none
--   2 nonce                of this claim
--   3 lease_ms             lifetime of the lease without a heartbeat
--   4 keep_ms              lifetime of the record of a lease's end
--   5 max_lease_ms         maximum lifetime of a lease since its opening or last takeover, 0 for none
--   6 consumer             who claims, as the lease shows it; "" for no name
--   7 last_name            of the lease to ack; "" to ack none
--   8 last_token
--   9 held_ms              time since the consumer's last confirmed answer
-- Returns: {"open", opening, entry}: the last lease is acked, and the next one open; {"acked"}: the last lease is acked
--   and claim.lua must claim; {"slow"}: nothing was changed, settle.lua must ack and claim.lua must claim
-- Repeat: finds the last lease gone without a record, which counts as acked while it comes early, and the next one open
--   under its nonce, which gets a new deadline. A repeat after the next lease was acked as well opens a lease that
--   has no consumer, as a late claim.lua does; it expires.

--- @include clock, entry, layout, numbers, oom_guard, wakeup
-- A lease of one message that has no verdict and is not tracked; see lease.lua.
local ONE = '^(%S+) (%d+) (%d+) %d+ 1 1 %d+ %d+ 0$'
oom_guard(leases)
local totals = redis.call('HMGET', counters, 'paused', 'claimed', 'in_flight', 'recount', 'acked', 'layout')
if newer_layout(totals[6]) then return {'slow'} end -- claim.lua refuses
local us = clock_us()
local ms, acks, opens = math.floor(us / 1000), 0, 0
-- Usually none of these exists; where one does, what it means is read below.
local rare = redis.call('EXISTS', lease, closed, returned, delayed, last_closed) > 0
if last_name ~= '' then
  local packed, held, keep = redis.call('HGET', last_lease, 'm'), tonumber(held_ms), tonumber(keep_ms)
  local record = rare and redis.call('GET', last_closed)
  if packed and not record and not totals[4] and string.match(packed, ONE) == last_token and held * 2 <= keep then
    acks = 1
  elseif packed or record or held >= keep or redis.call('EXISTS', last_lease) == 1 then
    return {'slow'} -- it ended otherwise, is another consumer's, fenced or damaged, or its ack has to be recorded
  end
end

-- The lease is open already when an earlier execution opened it. Else a message that was never leased may be claimed
-- when nothing comes before it.
local packed = rare and name ~= '' and redis.call('HGET', lease, 'm')
local opening, entry
if packed then
  local token, since, span = string.match(packed, ONE)
  local longest = tonumber(max_lease_ms)
  if token and string.sub(token, 1, #nonce + 1) == nonce .. ':' and span == lease_ms
    and (longest == 0 or since + longest >= ms + lease_ms) then
    opening, entry = string.sub(token, #nonce + 2), redis.call('HGET', lease, 1)
  end
elseif name ~= '' then
  local before = rare and (redis.call('GET', closed) or redis.call('ZCARD', returned) > 0
    or redis.call('ZCOUNT', delayed, '-inf', ms) > 0)
  local expired = redis.call('ZCOUNT', leases, '-inf', ms)
  entry = redis.call('LINDEX', pending, -1)
  entry = not totals[1] and not totals[4] and not before and expired == 0 and entry
end
-- Kind 1: neither tracked nor the owner of a marker that ends with it.
entry = entry and string.byte(entry) == 49 and is_entry(entry) and entry
local tokens, waiting = redis.call('LLEN', wakeup), 0
if entry and not opening then
  waiting, opens = redis.call('LLEN', pending), 1
end

-- Writes that keep a message come before those that drop one.
if acks + opens > 0 then
  local claimed = string.format('%.0f', to_integer(totals[2]) + opens)
  redis.call('HSET', counters, 'claimed', claimed, 'acked', string.format('%.0f', to_integer(totals[5]) + acks),
    'in_flight', string.format('%.0f', to_integer(totals[3]) + opens - acks))
  if opens == 1 then
    opening = string.format('%.0f-%s', us, claimed)
    redis.call('HSET', lease, 'm', string.format('%s:%s %.0f %s 0 1 1 %s %.0f 0', nonce, opening, ms, lease_ms, keep_ms,
      enqueued_ms_of(entry)), 1, entry)
    if consumer ~= '' then
      redis.call('HSET', lease, 'by', consumer)
    end
  end
end
if entry then
  redis.call('ZADD', leases, ms + lease_ms, name)
end
if opens == 1 then
  redis.call('RPOP', pending)
end
if acks == 1 then
  redis.call('UNLINK', last_lease)
  redis.call('ZREM', leases, last_name)
end
if waiting > 1 then
  wake_consumer(wakeup, tokens)
elseif waiting == 1 and tokens > 0 then
  redis.call('LREM', wakeup, 0, '2') -- nothing is left that a dead consumer could keep from others
end
return entry and {'open', opening, entry} or {last_name ~= '' and 'acked' or 'slow'}
