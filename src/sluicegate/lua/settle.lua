-- Give slots of a lease their verdicts: ack, discard, nack, release and bury, in any mixture.
-- Guarantee: a verdict takes effect once, only under the token of the open lease, and the answer names every slot for which it did not.
-- KEYS:
--   1 lease
--   2 leases
--   3 closed
--   4 returned
--   5 delayed
--   6 dead
--   7 dead_records
--   8 counters
--   9 wakeup
--  10 completed      records of acked messages
--  11 failed         records of failed attempts
--  12 set_aside      values of kinds that only a newer version knows
--  13... markers     deduplication markers that end with the messages in `bound`
-- ARGV:
--   1 name           the lease's member in `leases`
--   2 token
--   3 keep_ms        life of the record of the end
--   4 recorded       0: a one-message lease with a library-made id, whose ack leaves no record where its repeat needs none; else 1
--   5 held_ms        time since the holder's last confirmed answer
--   6 most           delivery cap, 0 for none
--   7 max_dead_length      dead letters kept, 0 for all
--   8 completed_cap  records kept in `completed`, 0 for all, -1 for no history
--   9 failed_cap     likewise in `failed`
--  10 bound          slots of the markers, as ranges
--  11 verb           of a group
--  12 slots          of a group, as ranges
--  13 delay_ms       of a group: how long a nack stays out of reach
--  14 named          of a group: 1 when the verdict was given to its messages by name, 0 when to a whole batch
--  15... why         of a group: "reason US error type US error text"; then the next group
-- Returns: {lost slots as ranges, slots still held, slots of this opening that are dead as ranges, dead letters dropped for their cap,
--   values set aside}; what was put in a message's place from outside is buried or set aside, and its slot among the dead ones
-- Repeat: slots already gone under this token are done if the lease, or the record of its end, says that they went this way.
--   Nothing is recorded, freed or dropped for them again.

--- @include clock
--- @include oom_guard
--- @include wakeup
--- @include numbers
--- @include lease
local lease_key, leases, closed_key, counters, wakeup = KEYS[1], KEYS[2], KEYS[3], KEYS[8], KEYS[9]
local name, token, keep, most = ARGV[1], ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[6])
oom_guard(leases)
local tokens = redis.call('LLEN', wakeup)
local totals = redis.call('HMGET', counters, 'acked', 'in_flight', 'recount')
local record = redis.call('GET', closed_key)
if record then
--- @include ranges
--- @include closed_record
  record = read_closed_record(record)
end
local lease = read_lease(lease_key)
local ms = math.floor(clock_us() / 1000)
local lost, returned, buried, back, dropped, aside = '', '', '', 0, 0, 0

-- Most settles ack a whole lease of which nothing is recorded or freed. They do without the functions that the others need, since a
-- script makes its functions anew each time it runs.
if lease and lease.token == token and lease.held == lease.size and #ARGV == 15 and ARGV[11] == 'ack'
  and ARGV[12] == (lease.size == 1 and '1' or '1-' .. lease.size) and ARGV[8] == '-1' and ARGV[10] == '' then
  redis.call('HSET', counters, 'acked', string.format('%.0f', to_integer(totals[1]) + lease.size),
    'in_flight', string.format('%.0f', to_integer(totals[2]) - lease.size))
  if totals[3] then
--- @include count_up
--- @include recount
    adjust_recount(counters, totals[3], name, token, -lease.size)
  end
  lease.held, lease.acked = 0, lease.acked + lease.size
else
--- @include count_up
--- @include entry
--- @include dead
--- @include ranges
--- @include recount
--- @include foreign_values
--- @include slots
--- @include requeue_entry
--- @include history
--- @include marker_owners
--- @include markers
--- @include slot_outcomes
--- @include verdicts
  if not lease or lease.token ~= token then
    local fenced = lease and lease.token == '-' and fenced_record(lease_key)
    if fenced and fenced.token == token then
      return {lost_after(fenced, ARGV), 0, fenced.buried, 0, 0}
    elseif record and record.token == token then
      return {lost_after(record, ARGV), 0, record.buried, 0, 0}
    elseif not lease and not record and ARGV[4] == '0' and tonumber(ARGV[5]) < keep then
      return {'', 0, '', 0, 0}
    end
    return {requested_slots(ARGV), 0, '', 0, 0}
  end

  if moves_messages(ARGV) then
    for i = 4, 6 do
      redis.call('ZCARD', KEYS[i])
    end
    redis.call('HLEN', KEYS[7])
    redis.call('ZCARD', KEYS[12])
  end
  local completed, failed = history(KEYS[10], tonumber(ARGV[8])), history(KEYS[11], tonumber(ARGV[9]))
  local verdicts, gone = verdicts_of(lease_key, lease, ms, markers_of(ARGV[10], 13), completed, failed), {}
  for at = FIRST_GROUP, #ARGV, 5 do
    local verb, ranges = ARGV[at], ARGV[at + 1]
    if verb == 'ack' or verb == 'discard' then
      verdicts.finish(verb, ranges, gone, ARGV[at + 4])
    else
      back = back + verdicts.take_back(verb, ranges, gone, {
        delay = tonumber(ARGV[at + 2]), named = ARGV[at + 3] == '1', why = ARGV[at + 4], most = most,
        returned = KEYS[4], delayed = KEYS[5], dead = KEYS[6], records = KEYS[7], aside = KEYS[12], counters = counters,
      })
    end
  end
  adjust_recount(counters, totals[3], name, token, -verdicts.count(counters))
  dropped = trim_dead(KEYS[6], KEYS[7], counters, tonumber(ARGV[7]), verdicts.dead)
  if lease.held <= 0 and not verdicts.whole then
    lease.held = slots_in(lease_key) -- what was written into the lease from outside must not let it end with messages in it
  end
  if lease.held > 0 then
    verdicts.keep()
  end
  lost, returned, buried, aside = table.concat(gone, ','), verdicts.returned, verdicts.buried, verdicts.aside
end
if lease.held == 0 then
  redis.call('UNLINK', lease_key)
  redis.call('ZREM', leases, name)
  -- Without a record a repeat counts as done only while it comes early and finds no record of another end.
  if ARGV[4] == '1' or record or tonumber(ARGV[5]) * 2 > keep or returned ~= '' or buried ~= '' then
    local how = (lease.acked > 0 or buried ~= '') and 'acked' or 'returned'
    redis.call('SET', closed_key, closed_record(how, token, ms, lease, returned, buried, ''), 'PX', keep)
  end
end
if back > 0 then
  wake_consumer(wakeup, tokens)
end
return {lost, lease.held, buried, dropped, aside}
