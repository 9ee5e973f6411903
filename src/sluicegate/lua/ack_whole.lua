-- Ack a whole lease of which nothing was settled before, and of which nothing is recorded or freed: the usual end.
-- Guarantee: takes effect once, only under the token of the open lease, and only while the lease holds all its
--   messages. The records of its batches count them as done.
-- KEYS:
--   1 lease
--   2 leases
--   3 closed
--   4 counters
--   5 tracking             the records of batches and jobs
--   6 tracking_ended       those that ended, by the time when they are removed
--   7 tracking_news        the latest that ended
-- ARGV:
--   1 name               the lease's member in `leases`
--   2 token
--   3 size               messages of the lease
--   4 keep_ms            lifetime of the record of the end
--   5 recorded           0: a one-message lease with a library-made id, whose ack leaves no record where a repeat needs
--                        none; else 1
--   6 held_ms            time since the consumer's last confirmed answer
-- Returns: "acked", or "other" when nothing was changed and settle.lua must decide: the lease ended otherwise, belongs
--   to another consumer, holds fewer messages or jobs, or a repair recounts
-- Repeat: a lease that is gone under this token counts as acked if the record of its end says so. Without a record, an
--   unrecorded ack counts as done while it comes early.

--- @include clock, lease, new_closed_record, numbers, oom_guard, tracking
oom_guard(leases)
local totals = redis.call('HMGET', counters, 'acked', 'in_flight', 'recount')
local record = redis.call('GET', closed)
local held = read_lease(lease)
if not held or held.token ~= token then
  local readable, ended = pcall(cjson.decode, record or 'null')
  local proved = readable and type(ended) == 'table' and ended.token == token and ended.acked == ended.size
    and ended.size == tonumber(size)
  local unrecorded = not held and not record and recorded == '0' and tonumber(held_ms) < tonumber(keep_ms)
  return (proved or unrecorded) and 'acked' or 'other'
elseif held.held ~= held.size or held.size ~= tonumber(size) or totals[3] then
  return 'other'
end
local tracked = held.tracked and redis.call('HGET', lease, 'tracked')
if held.tracked and not tracked then
  return 'other'
end
local tally = tracked and new_tally(tracking, tracking_ended, tracking_news, math.floor(clock_us() / 1000))
redis.call('HSET', counters, 'acked', string.format('%.0f', to_integer(totals[1]) + held.size),
  'in_flight', string.format('%.0f', to_integer(totals[2]) - held.size))
held.held, held.acked = 0, held.acked + held.size
redis.call('UNLINK', lease)
redis.call('ZREM', leases, name)
-- Without a record a repeat counts as done only while it comes early and finds no record of another end.
if recorded == '1' or record or tonumber(held_ms) * 2 > tonumber(keep_ms) then
  local ms = math.floor(clock_us() / 1000)
  redis.call('SET', closed, new_closed_record('acked', token, ms, held, '', '', ''), 'PX', keep_ms)
end
if tally then
  for batch, count in string.gmatch(tracked, '([^\31]+)\31(%d+)') do
    tally.count(batch, 'in_flight', 'done', tonumber(count))
  end
  tally.write()
end
return 'acked'
