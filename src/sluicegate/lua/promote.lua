-- Make due messages claimable.
-- Guarantee: the server's clock decides what is due. A message that was leased before returns to its first order, any
--   other joins at the tail.
-- KEYS:
--   1 delayed
--   2 pending
--   3 returned
--   4 wakeup
--   5 tracking             the records of batches and jobs
--   6 tracking_ended       those that ended, by the time when they are removed
--   7 tracking_news        the latest that ended
--   8 counters
-- ARGV:
--   1 step                 maximum messages to move
--   2 group                the name of the group of a stream, to whose `pending` nothing can be added; "" for a queue
-- Returns: messages moved
-- Repeat: moves what is due by then.

--- @include clock, entry, entry_sequence, layout, oom_guard, tracked, tracking, wakeup
local MAX_BYTES = 524288 -- as in a step of a reap
oom_guard(delayed)
local tokens = redis.call('LLEN', wakeup)
local newer = newer_layout(redis.call('HGET', counters, 'layout'))
if newer then return newer end
if group == '' then
  redis.call('LLEN', pending)
end
redis.call('ZCARD', returned)
local ms = math.floor(clock_us() / 1000)
local due, bytes, chunk = {}, 0, 1
step = tonumber(step)
repeat
  local wanted = math.min(chunk, step - #due)
  local found = redis.call('ZRANGEBYSCORE', delayed, '-inf', ms, 'LIMIT', #due, wanted)
  for i = 1, #found do
    due[#due + 1], bytes = found[i], bytes + #found[i]
  end
  chunk = math.min(chunk * 4, 1000)
until #found < wanted or #due >= step or bytes >= MAX_BYTES
local tally = any_tracked(tracking, due) and new_tally(tracking, tracking_ended, tracking_news, ms)
for i = 1, #due do
  local entry = due[i]
  if tally and is_entry(entry) then
    tally.moved(entry, 'delayed', 'waiting')
  end
  if is_entry(entry) and (was_leased(entry) or group ~= '') then
    redis.call('ZADD', returned, sequence_of(entry), entry)
  elseif group ~= '' then
    redis.call('ZADD', returned, ms, entry) -- a foreign value, which a claim buries
  else
    redis.call('LPUSH', pending, entry)
  end
end
if #due > 0 then
  redis.call('ZREMRANGEBYRANK', delayed, 0, #due - 1)
  wake_consumer(wakeup, tokens)
end
if tally then
  tally.write()
end
return #due
