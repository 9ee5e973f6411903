-- Record how the handling ended of messages that were acked before it began.
-- Guarantee: a part is recorded and counted once, whoever holds the queue's other leases.
-- KEYS:
--   1 closed         the record of the ack
--   2 leases
--   3 counters
--   4 completed      records of acked messages
--   5 failed         records of failed attempts
-- ARGV:
--   1 token          of the ack
--   2 keep_ms        life of the record of the ack when there is none
--   3 recorded       0: the ack left no record, so the first part makes one
--   4 part           number of this part, from 1
--   5 last           1: no part follows, and nobody asks for the record of the ack any more; 2: no part follows; 0: others do
--   6 completed_cap  records kept in `completed`, 0 for all, -1 for no history
--   7 failed_cap     likewise in `failed`
--   8 why            of the failed: "US error type US error text"
--   9 done           how many of the following are done; the others failed
--  10... entry
-- Returns: {1 when it was recorded now}
-- Repeat: a part that is on record changes nothing, nor does one whose ack is no longer on record.

--- @include clock
--- @include oom_guard
--- @include count_up
--- @include entry
--- @include history
--- @include lease
local closed, counters, token, part, done = KEYS[1], KEYS[3], ARGV[1], tonumber(ARGV[4]), tonumber(ARGV[9])
oom_guard(KEYS[2])
redis.call('HLEN', counters)
local stored = redis.call('GET', closed)
local ms = math.floor(clock_us() / 1000)
if not stored and (ARGV[3] == '1' or part > 1) then
  return {0}
end
local sound, record = pcall(cjson.decode, stored or closed_record('acked', token, ms, {size = 1, acked = 1}, '', '', ''))
if not sound or type(record) ~= 'table' or record.token ~= token or (record.concluded or 0) ~= part - 1 then
  return {0}
end
local completed, failed, lost = history(KEYS[4], tonumber(ARGV[6])), history(KEYS[5], tonumber(ARGV[7])), 0
for i = 10, #ARGV do
  local entry = ended(ARGV[i], 0)
  if i - 9 > done then
    lost = lost + 1
    if failed then
      failed.add(string.format('%.0f', ms) .. ARGV[8] .. '\31discard\31' .. entry)
    end
  elseif completed then
    completed.add(string.format('%.0f', ms) .. '\31' .. entry)
  end
end
if completed then
  completed.write()
end
if failed then
  failed.write()
end
if lost > 0 then
  count_up(counters, 'failed', lost)
  count_up(counters, 'acked_and_failed', lost)
end
record.concluded = part
if not stored then
  redis.call('SET', closed, cjson.encode(record), 'PX', ARGV[2])
elseif ARGV[5] == '1' then
  redis.call('DEL', closed)
else
  redis.call('SET', closed, cjson.encode(record), 'KEEPTTL')
end
return {1}
