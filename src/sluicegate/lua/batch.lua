-- Open a batch, seal it, or read its counts.
-- Guarantee: a batch is opened and sealed once, completes only when it is sealed, and costs the same to read however
--   many messages it has.
-- KEYS:
--   1 tracking             the records of batches and jobs
--   2 tracking_ended       those that ended, by the time when they are removed
--   3 tracking_news        the latest that ended
-- ARGV:
--   1 verb                 "open": a batch that is not known begins; "seal": all its messages are published; "status":
--                          only read
--   2 batch                its name in fields
--   3 life_ms              lifetime of the record after the batch has ended; for "open"
-- Returns: {total or -1 when it is not known, delayed, in flight, done, dead, gone, time of sealing in ms or 0, time of
--   its end or 0}
-- Repeat: opens and seals nothing twice.

--- @include clock, numbers, oom_guard, tracking
local prefix = 'b:' .. batch .. ':'
local is_known = redis.call('HEXISTS', tracking, prefix .. 'total') == 1
if verb == 'open' and not is_known then
  oom_guard(tracking_ended)
  redis.call('HSET', tracking, prefix .. 'total', 0, prefix .. 'ttl_ms', life_ms)
elseif verb == 'seal' then
  local ms = math.floor(clock_us() / 1000)
  oom_guard(tracking_ended)
  local tally = new_tally(tracking, tracking_ended, tracking_news, ms)
  if is_known and redis.call('HEXISTS', tracking, prefix .. 'sealed') == 0 then
    redis.call('HSET', tracking, prefix .. 'sealed', string.format('%.0f', ms))
    tally.count(batch, 'new', 'new', 0) -- its end may have been waiting for this
    tally.write()
  end
end
local found = redis.call('HMGET', tracking, prefix .. 'total', prefix .. 'delayed', prefix .. 'in_flight',
  prefix .. 'done', prefix .. 'dead', prefix .. 'gone', prefix .. 'sealed', prefix .. 'ended')
local reply = {found[1] and to_integer(found[1]) or -1}
for i = 2, 8 do
  reply[i] = to_integer(found[i])
end
return reply
