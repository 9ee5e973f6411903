-- Give slots of a lease their verdicts: ack, nack, release and bury, in any mixture.
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
--   9 bell
-- ARGV:
--   1 name           the lease's member in `leases`
--   2 token
--   3 keep_ms        life of the record of the end
--   4 recorded       0: a one-message lease with a library-made id, whose ack leaves no record where its repeat needs none; else 1
--   5 held_ms        time since the holder's last confirmed answer
--   6 most           delivery cap, 0 for none
--   7 verb           of a group
--   8 slots          of a group, as ranges
--   9 delay_ms       of a group: how long a nack stays out of reach
--  10 named          of a group: 1 when the verdict was given to its messages by name, 0 when to a whole batch
--  11... why         of a group: "reason US error type US error text"; then the next group
-- Returns: {lost slots as ranges, slots still held, slots of this opening that are dead as ranges}
-- Repeat: slots already gone under this token are done if the lease, or the record of its end, says that they went this way.

--- @include clock
--- @include admit
--- @include bell
--- @include entry
--- @include dead
--- @include lease
--- @include ranges
--- @include slots
--- @include come_back
--- @include verdicts
local lease_key, leases, closed_key, counters, bell = KEYS[1], KEYS[2], KEYS[3], KEYS[8], KEYS[9]
local name, token, keep, most = ARGV[1], ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[6])
admit(leases)
local tokens = redis.call('LLEN', bell)
redis.call('HLEN', counters)
local record = redis.call('GET', closed_key)
record = record and cjson.decode(record)
local lease = read_lease(lease_key)

if not lease or lease.token ~= token then
  local fenced = lease and lease.token == '-' and fenced_record(lease_key)
  if fenced and fenced.token == token then
    return {lost_after(fenced, ARGV), 0, fenced.buried}
  elseif record and record.token == token then
    return {lost_after(record, ARGV), 0, record.buried}
  elseif not lease and not record and ARGV[4] == '0' and tonumber(ARGV[5]) < keep then
    return {'', 0, ''}
  end
  return {asked_slots(ARGV), 0, ''}
end

for i = 4, 6 do
  redis.call('ZCARD', KEYS[i])
end
redis.call('HLEN', KEYS[7])
local ms = math.floor(clock_us() / 1000)
local verdicts, lost, back = verdicts_of(lease_key, lease), {}, 0
for at = 7, #ARGV, 5 do
  local verb, ranges = ARGV[at], ARGV[at + 1]
  if verb == 'ack' then
    verdicts.ack(ranges, lost)
  else
    back = back + verdicts.take_back(verb, ranges, lost, {
      ms = ms, delay = tonumber(ARGV[at + 2]), named = ARGV[at + 3] == '1', why = ARGV[at + 4], most = most,
      returned = KEYS[4], delayed = KEYS[5], dead = KEYS[6], records = KEYS[7],
    })
  end
end
verdicts.count(counters)
if lease.held > 0 then
  verdicts.keep()
else
  redis.call('UNLINK', lease_key)
  redis.call('ZREM', leases, name)
  -- Without a record a repeat counts as done only while it comes early and finds no record of another end.
  if ARGV[4] == '1' or record or tonumber(ARGV[5]) * 2 > keep or verdicts.returned ~= '' or verdicts.buried ~= '' then
    local how = (lease.acked > 0 or verdicts.buried ~= '') and 'acked' or 'returned'
    redis.call('SET', closed_key, close_record(how, token, ms, lease, verdicts.returned, verdicts.buried, ''), 'PX', keep)
  end
end
if back > 0 then
  ring(bell, tokens)
end
return {table.concat(lost, ','), lease.held, verdicts.buried}
