-- Open a lease over the oldest claimable messages, or answer for a lease id that is already known.
-- Guarantee: a message is in one open lease at most, and a repeat under the same id and nonce answers with the same lease.
-- KEYS:
--   1 lease
--   2 leases
--   3 closed
--   4 pending
--   5 returned
--   6 delayed
--   7 counters
--   8 wakeup
--   9 dead
--  10 dead_records
--  11 set_aside      values of kinds that only a newer version knows
--  12... run        what a run noted as given back: messages are passed by and put off for `exclude_ms`, a whole lease (US name) stays ended
-- ARGV:
--   1 name           the lease's member in `leases`
--   2 nonce          of this claim
--   3 limit          most messages; 0: none, and none later either under this nonce, whose caller has given up
--   4 span_ms        life of the lease without a heartbeat
--   5 keep_ms        life of the record of its end
--   6 empty_ms       how long an empty answer is remembered under this id, 0 for not; with limit 0, under this nonce
--   7 most           delivery cap, 0 for none
--   8 takeover       token of the open lease to take over, "?" to be told it, "" to leave it alone
--   9 tidy           1: answer with what must come back first; 0: take what is there
--  10 max_bytes     stop taking once this much is taken
--  11 max_lease_ms     longest life of a lease since its opening or last takeover, 0 for no bound
--  12 max_dead_length      dead letters kept, 0 for all
--  13 strict         1: foreign values go to the tail of `pending`; 0: they are buried
--  14... exclude_ms     with a run
-- Returns: {"open", opening, takeovers, slots, entries, buried, dropped, aside} with slots empty when they are 1..n;
--   {"held", token, silent ms}; {"acked", acked, returned, buried};
--   {"empty", ms to the next due or expiring message or -1, buried, dropped, aside, 1 for a remembered answer};
--   {"paused"}; {"tidy", due, buried, dropped, aside, expired lease names...};
--   {"foreign", values moved to the tail, 1 when more may lie behind them, ms to the next due or expiring message or -1, aside};
--   {"reaping"} when the lease under this id has expired, or was damaged from outside, and must come back first.
--   `buried` are foreign values that are dead now, `dropped` the dead letters that had to go for the cap, `aside` values of newer kinds
-- Repeat: the open lease under this nonce is answered again with a new deadline; a lost takeover is found done.

--- @include clock
--- @include oom_guard
--- @include wakeup
--- @include numbers
--- @include entry
--- @include lease
--- @include write_closed_record
--- @include write_slots
local lease_key, leases, closed_key, pending, returned = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local delayed, counters, wakeup = KEYS[6], KEYS[7], KEYS[8]
local name, nonce, limit, span, most = ARGV[1], ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4]), tonumber(ARGV[7])
local longest, strict = tonumber(ARGV[11]), ARGV[13] == '1'
span = longest > 0 and math.min(span, longest) or span
oom_guard(leases)
local tokens = redis.call('LLEN', wakeup)
local totals = redis.call('HMGET', counters, 'paused', 'claimed', 'in_flight', 'recount')
local us = clock_us()
local ms = math.floor(us / 1000)

local lease = read_lease(lease_key, name == nonce) -- then the library made the id for this claim
if lease then
  if lease.token == '-' or lease.damaged then
    return {'reaping'}
  end
  local holder, opening = string.match(lease.token, '^(.-):(.+)$')
  local taken_over = false
  opening = opening or ''
  if holder ~= nonce then
    local deadline = tonumber(redis.call('ZSCORE', leases, name)) or ms
    if ARGV[8] == '' and deadline <= ms then
      return {'reaping'}
    elseif ARGV[8] ~= lease.token then
      return {'held', lease.token, math.max(-LATEST, math.min(LATEST, ms - (deadline - lease.span)))}
    end
    lease.token, lease.takeovers, lease.since, taken_over = nonce .. ':' .. opening, lease.takeovers + 1, ms, true
  elseif longest > 0 then
    span = math.min(span, lease.since + longest - ms)
    if span <= 0 then
      redis.call('ZADD', leases, ms, name) -- a repeat gives it no more than its longest life; the bound may be younger than the lease
      return {'reaping'}
    end
  end
--- @include count_up
--- @include dead
--- @include ranges
--- @include recount
--- @include slots
--- @include foreign_values
  lease.span = span
  local held, found = read_slots(lease_key, 1, lease.size, lease.size, math.huge)
  local slots, entries, gone, strange, aside = {}, {}, {}, {}, 0
  for at = 1, #held do
    if is_entry(found[at]) then
      slots[#slots + 1], entries[#entries + 1] = held[at], found[at]
    else -- overwritten from outside: it leaves the lease, whose other messages are worked on
      gone[#gone + 1], strange[#strange + 1] = held[at], found[at]
    end
  end
  if #gone > 0 then
    redis.call('ZCARD', KEYS[9])
    redis.call('HLEN', KEYS[10])
    redis.call('ZCARD', KEYS[11])
  end
  if taken_over then
    count_up(counters, 'taken_over', 1)
  end
  if #gone > 0 then
    for at = 1, #strange do
      aside = aside + store_foreign(KEYS[11], KEYS[9], KEYS[10], counters, ms, strange[at])
    end
    drop_slots(lease_key, gone)
    count_up(counters, 'in_flight', -#gone)
    adjust_recount(counters, totals[4], name, lease.token, -#gone)
    lease.held = #slots
  end
  redis.call('HSET', lease_key, 'm', pack_lease(lease))
  redis.call('ZADD', leases, ms + span, name)
  local dropped = trim_dead(KEYS[9], KEYS[10], counters, tonumber(ARGV[12]), #gone - aside)
  if #slots == 0 then
    redis.call('UNLINK', lease_key)
    redis.call('ZREM', leases, name)
    return {'tidy', 0, #gone - aside, dropped, aside}
  end
  return {'open', string.match(lease.token, ':(.+)$') or '', lease.takeovers, slots, entries, #gone - aside, dropped, aside}
end

local record = redis.call('GET', closed_key)
if record then
--- @include ranges
--- @include closed_record
  record = read_closed_record(record)
  local given_back = KEYS[12] and record.how == 'returned' and redis.call('SMISMEMBER', KEYS[12], '\31' .. name)[1] == 1
  if given_back or record.how == 'acked' then
    return {'acked', record.acked, count_slots(record.returned), count_slots(record.buried)}
  end
end
if record and record.empty and to_integer(record.empty) > ms then
  return {'empty', -1, 0, 0, 0, 1}
elseif record and record.gone == nonce then
  return {'empty', -1, 0, 0, 0}
end
if limit == 0 then
  write_closed_record(closed_key, record, 'gone', nonce, tonumber(ARGV[6]))
  if redis.call('EXISTS', returned, pending) > 0 then
    wake_consumer(wakeup, tokens)
  end
  return {'empty', -1, 0, 0, 0}
end
if totals[1] then
  return {'paused'}
end
local due = #redis.call('ZRANGEBYSCORE', delayed, '-inf', ms, 'LIMIT', 0, 1)
local expired = redis.call('ZRANGEBYSCORE', leases, '-inf', ms, 'LIMIT', 0, 16)
if ARGV[9] == '1' and (due > 0 or #expired > 0) then
  return {'tidy', due, 0, 0, 0, unpack(expired)}
end

-- One untried message is the most frequent claim, and needs none of the functions that weigh a batch.
local head = limit == 1 and redis.call('EXISTS', returned) == 0 and redis.call('LINDEX', pending, -1)
local take = head and is_entry(head) and {taken = {head}, passed = {}, foreign = {}, ranks = 0, scanned = 1}
local excluded_in
if KEYS[12] then
--- @include exclude_returned
  excluded_in = returned_by(KEYS[12])
end
if not take then
--- @include select_batch
  take = batch_selector(limit, tonumber(ARGV[10]), most, excluded_in)
  take.from_returned(returned)
  take.from_pending(pending)
end
local taken, foreign, dropped = take.taken, take.foreign, 0
if #foreign > 0 then
  redis.call('ZCARD', KEYS[9])
  redis.call('HLEN', KEYS[10])
  redis.call('ZCARD', KEYS[11])
end

-- Writes that keep a message come before those that drop one.
if #taken > 0 then
  local claimed = string.format('%.0f', to_integer(totals[2]) + #taken)
  local opening = string.format('%.0f-%s', us, claimed)
  redis.call('HSET', counters, 'claimed', claimed, 'in_flight', string.format('%.0f', to_integer(totals[3]) + #taken))
  lease = {
    token = nonce .. ':' .. opening, since = ms, span = span, takeovers = 0, size = #taken, held = #taken,
    keep = tonumber(ARGV[5]), oldest = enqueued_ms_of(taken[1]), acked = 0,
  }
  write_slots(lease_key, pack_lease(lease), taken)
  if totals[4] then
--- @include count_up
--- @include recount
    adjust_recount(counters, totals[4], name, lease.token, #taken)
  end
  redis.call('ZADD', leases, ms + span, name)
end
for first = 1, #take.passed, 1000 do
  local scored, due_again = {}, ms + tonumber(ARGV[14]) -- out of reach, so that the next claim does not read them again
  for i = first, math.min(first + 999, #take.passed) do
    scored[#scored + 1], scored[#scored + 2] = due_again, take.passed[i]
  end
  redis.call('ZADD', delayed, unpack(scored))
end
local buried, aside, moved = 0, 0, 0
if #foreign > 0 then
--- @include count_up
--- @include dead
--- @include foreign_values
  for i = 1, #foreign do
    if strict and not is_newer(foreign[i]) then
      redis.call('LPUSH', pending, foreign[i])
      moved = moved + 1
    else
      local set_aside, away = store_foreign(KEYS[11], KEYS[9], KEYS[10], counters, ms, foreign[i])
      aside, buried = aside + set_aside, buried + away
    end
  end
  dropped = trim_dead(KEYS[9], KEYS[10], counters, tonumber(ARGV[12]), buried)
end
if take.ranks > 0 then
  redis.call('ZREMRANGEBYRANK', returned, 0, take.ranks - 1)
end
if take.scanned == 1 then
  redis.call('RPOP', pending)
elseif take.scanned > 1 then
  redis.call('LTRIM', pending, 0, -(take.scanned + 1))
end
-- A list that holds nothing but the foreign values that were just moved wakes nobody: they would be met again at once.
local more = redis.call('EXISTS', returned, pending) > 0
if moved > 0 then
  more = redis.call('EXISTS', returned) > 0 or redis.call('LLEN', pending) > moved
end
if more and (moved == 0 or #taken > 0) or #take.passed > 0 then -- others must know when what was put off falls due
  wake_consumer(wakeup, tokens)
elseif tokens > 0 and not more then
  redis.call('LREM', wakeup, 0, '2') -- nothing is left that a dead consumer could keep from others
end
if #taken > 0 then
  return {'open', string.match(lease.token, ':(.+)$'), 0, {}, taken, buried, dropped, aside}
end
if more and buried + aside + #take.passed > 0 and moved == 0 then
  return {'tidy', 0, buried, dropped, aside}
end
local empty_ms = tonumber(ARGV[6])
if empty_ms > 0 and not more and moved == 0 and due == 0 and #expired == 0 then
  write_closed_record(closed_key, record, 'empty', string.format('%.0f', ms + empty_ms), empty_ms)
end
local first_due = tonumber(redis.call('ZRANGE', delayed, 0, 0, 'WITHSCORES')[2])
local first_expiry = tonumber(redis.call('ZRANGE', leases, 0, 0, 'WITHSCORES')[2])
local next_ms = math.min(first_due or math.huge, first_expiry or math.huge) - ms
next_ms = next_ms < LATEST and math.max(0, math.ceil(next_ms)) or -1
if moved > 0 then
  return {'foreign', moved, more and 1 or 0, next_ms, aside}
end
return {'empty', next_ms, buried, dropped, aside}
