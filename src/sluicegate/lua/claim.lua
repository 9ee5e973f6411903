-- Open a lease over the oldest claimable messages.
-- Guarantee: a message is in one open lease at most. A lease id that is open, or whose end answers the claim, is not
--   opened again.
-- KEYS:
--   1 lease
--   2 leases
--   3 closed
--   4 pending              a list; of a group, its stream
--   5 returned
--   6 delayed
--   7 counters
--   8 wakeup
--   9 dead
--  10 dead_records
--  11 set_aside            messages of kinds that only a newer version knows
--  12 tracking             the records of batches and jobs
--  13 tracking_ended       those that ended, by the time when they are removed
--  14 tracking_news        the latest that ended
--  15... run               what a run returned: its messages are excluded and delayed by `exclude_ms`, and a lease
--                          (US name) that it returned stays ended
-- ARGV:
--   1 name                 the lease's member in `leases`
--   2 nonce                of this claim
--   3 limit                maximum messages; 0: take none, now or when a claim with this nonce is executed late,
--                          because its caller gave up
--   4 lease_ms             lifetime of the lease without a heartbeat
--   5 keep_ms              lifetime of the record of its end
--   6 empty_ms             lifetime of an empty answer under this lease id, 0 for none; with limit 0, of the refusal
--   7 max_delivery_count   0 for no maximum
--   8 takeover             token of the lease to take over, "?" to ask for it, "" to leave an open lease alone
--   9 maintain             1: report what must be reaped or promoted first; 0: claim without that
--  10 max_bytes            stop taking messages once this much is taken
--  11 max_lease_ms         maximum lifetime of a lease since its opening or last takeover, 0 for none
--  12 max_dead_length      dead messages kept, 0 for all
--  13 strict               1: foreign values move to the tail of `pending`; 0: they are buried
--  14 consumer             who claims, as the lease shows it; "" for no name
--  15 group                the name of the group of a stream, "" for a queue
--  16... exclude_ms        with a run
-- Returns: {"open", opening, 0, {}, entries, buried, dropped, aside};
--   {"known"} when the lease is open under this nonce or under the token to take over, so that claim_known.lua answers;
--   {"held", token, silent ms}; {"reaping"} when the lease expired or is damaged, and must be reaped first;
--   {"acked", acked, returned, buried} from the record of its end; {"paused"};
--   {"empty", ms to the next change or -1, buried, dropped, aside, 1 for a remembered answer};
--   {"maintain", due, buried, dropped, aside, expired lease names...}: `due` is 1, and 2 more when entries of a group
--   must be adopted;
--   {"foreign", values moved to the tail, 1 when more may lie behind them, ms to the next change or -1, aside}.
--   `buried` counts foreign values, `dropped` dead messages over the maximum, `aside` messages of newer kinds.
-- Repeat: finds the lease open under its nonce, and opens no other.

--- @include claim_tally, clock, closed_answer, closed_record, dead, exclude_returned, foreign_values, layout, lease
--- @include next_change, oom_guard, open_answer, open_lease, remove_batch, select_batch, unread, wake_after_claim
--- @include wakeup, write_closed_record
limit = tonumber(limit)
local span, max_lease, run = tonumber(lease_ms), tonumber(max_lease_ms), KEYS[run_at]
span = max_lease > 0 and math.min(span, max_lease) or span
oom_guard(leases)
local tokens = redis.call('LLEN', wakeup)
local totals = redis.call('HMGET', counters, 'paused', 'claimed', 'in_flight', 'recount', 'published', 'packed',
  'layout')
local unread = read_group(pending, group)
local us = clock_us()
local ms = math.floor(us / 1000)
local known = read_lease(lease, name == nonce) -- the library made an id that equals the nonce for this claim
if known then
  return open_answer(known, leases, name, nonce, takeover, ms)
end
local record = redis.call('GET', closed)
record = record and read_closed_record(record)
local answer = newer_layout(totals[7]) or record and closed_answer(record, name, nonce, run, ms)
if answer then
  return answer
elseif limit == 0 then
  write_closed_record(closed, record, 'gone', nonce, tonumber(empty_ms))
  if is_claimable(returned, pending, unread) then
    wake_consumer(wakeup, tokens)
  end
  return {'empty', -1, 0, 0, 0}
elseif totals[1] then
  return {'paused'}
end
local due = #redis.call('ZRANGEBYSCORE', delayed, '-inf', ms, 'LIMIT', 0, 1)
local expired = redis.call('ZRANGEBYSCORE', leases, '-inf', ms, 'LIMIT', 0, 16)
due = due + (unread and is_adoption_due(unread, counters, ms) and 2 or 0)
if maintain == '1' and (due > 0 or #expired > 0) then
  return {'maintain', due, 0, 0, 0, unpack(expired)}
end
local excluded_in = run and returned_by(run)
local batch = select_batch(returned, pending, limit, tonumber(max_bytes), tonumber(max_delivery_count), excluded_in,
  unread, totals[5], totals[6])
local to = #batch.foreign > 0 and foreign_stores(set_aside, dead, dead_records, counters)
local tally = claim_tally(tracking, tracking_ended, tracking_news, ms, batch, tonumber(max_dead_length))

-- Writes that keep a message come before those that drop one.
local opening = batch.size > 0 and open_lease(lease, leases, counters, totals, us, name, nonce, span,
  tonumber(keep_ms), batch, consumer, tally ~= nil)
if run then
  delay_excluded(delayed, batch.excluded, ms + tonumber(ARGV[exclude_ms_at]))
end
local moved, buried, aside, dropped = 0, 0, 0, 0
if to then
  moved, buried, aside = clear_foreign(to, ms, batch.foreign, strict == '1' and not unread and pending)
  dropped = trim_dead(dead, dead_records, counters, tonumber(max_dead_length), buried, tally)
end
remove_batch(returned, pending, batch, unread, counters, totals[6] or batch.packed)
if tally then
  local token = nonce .. ':' .. (opening or '')
  record_claim(tally, lease, batch, {lease = name, worker = consumer, token = token, begun = 1})
end
local more = wake_after_claim(returned, pending, wakeup, tokens, batch.excluded, moved, opening, unread)
if opening then
  return {'open', opening, 0, {}, batch.taken, buried, dropped, aside}
elseif more and buried + aside + #batch.excluded > 0 and moved == 0 then
  return {'maintain', 0, buried, dropped, aside}
end
local life = tonumber(empty_ms)
if life > 0 and not more and moved == 0 and due % 2 == 0 and #expired == 0 then
  write_closed_record(closed, record, 'empty', string.format('%.0f', ms + life), life)
end
local next_ms = next_change(delayed, leases, ms)
return moved > 0 and {'foreign', moved, more and 1 or 0, next_ms, aside} or {'empty', next_ms, buried, dropped, aside}
