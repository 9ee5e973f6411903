-- Make delayed messages claimable that are due.
-- Guarantee: judged by the server's clock; what was in a lease before returns to its first order, what was not joins at the tail.
-- KEYS:
--   1 delayed
--   2 pending
--   3 returned
--   4 wakeup
-- ARGV:
--   1 step           most messages to move
-- Returns: messages moved
-- Repeat: moves what is due by then.

--- @include clock
--- @include oom_guard
--- @include wakeup
--- @include entry
local MAX_BYTES = 524288 -- as a reap's
local delayed, pending, returned = KEYS[1], KEYS[2], KEYS[3]
oom_guard(delayed)
local tokens = redis.call('LLEN', KEYS[4])
redis.call('LLEN', pending)
redis.call('ZCARD', returned)
local ms = math.floor(clock_us() / 1000)
local due, bytes, chunk, step = {}, 0, 1, tonumber(ARGV[1])
repeat
  local wanted = math.min(chunk, step - #due)
  local found = redis.call('ZRANGEBYSCORE', delayed, '-inf', ms, 'LIMIT', #due, wanted)
  for i = 1, #found do
    due[#due + 1], bytes = found[i], bytes + #found[i]
  end
  chunk = math.min(chunk * 4, 1000)
until #found < wanted or #due >= step or bytes >= MAX_BYTES
for i = 1, #due do
  local entry = due[i]
  if is_entry(entry) and was_leased(entry) then
    redis.call('ZADD', returned, sequence_of(entry), entry)
  else
    redis.call('LPUSH', pending, entry)
  end
end
if #due > 0 then
  redis.call('ZREMRANGEBYRANK', delayed, 0, #due - 1)
  wake_consumer(KEYS[4], tokens)
end
return #due
