-- Record how the handling of messages ended that were acked before it began.
-- Guarantee: a part is recorded and counted once, whoever holds the queue's other leases.
-- KEYS:
--   1 closed               the record of the ack
--   2 leases
--   3 counters
--   4 completed            records of acked messages
--   5 failed               records of failed attempts
--   6 tracking             the records of batches and jobs
--   7 tracking_ended       those that ended, by the time when they are removed
--   8 tracking_news        the latest that ended
-- ARGV:
--   1 token                of the ack
--   2 keep_ms              lifetime of the record of the ack when there is none
--   3 recorded             0: the ack left no record, so the first part writes one
--   4 part                 number of this part, from 1
--   5 last                 1: no part follows, and the record of the ack is not needed any more; 2: no part follows; 0:
--                          others follow
--   6 completed_cap         records kept in `completed`, 0 for all, -1 for no history
--   7 failed_cap           likewise in `failed`
--   8 why                  of the failed: "US error type US error text"
--   9 done                 how many of the following entries are done; the others failed
--  10... entry
-- Returns: {1 when the part was recorded now}
-- Repeat: a part that is recorded already changes nothing, nor does one whose ack has no record any more.

--- @include clock, count_up, entry_counts, history, new_closed_record, oom_guard
--- @include tracked, tracking
part, done = tonumber(part), tonumber(done)
oom_guard(leases)
redis.call('HLEN', counters)
local stored = redis.call('GET', closed)
local ms = math.floor(clock_us() / 1000)
if not stored and (recorded == '1' or part > 1) then
  return {0}
end
local text = stored or new_closed_record('acked', token, ms, {size = 1, acked = 1}, '', '', '')
local readable, record = pcall(cjson.decode, text)
if not readable or type(record) ~= 'table' or record.token ~= token or (record.concluded or 0) ~= part - 1 then
  return {0}
end
local tally = any_tracked(tracking, {unpack(ARGV, entry_at + done)}) -- those that failed
  and new_tally(tracking, tracking_ended, tracking_news, ms)
local completions = history(completed, tonumber(completed_cap))
local failures, lost = history(failed, tonumber(failed_cap)), 0
for i = entry_at, #ARGV do
  local entry = ended(ARGV[i], 0)
  if i - entry_at >= done then
    lost = lost + 1
    if tally then
      tally.moved(entry, 'done', 'gone', {why = why, failed = true})
    end
    if failures then
      failures.add(string.format('%.0f', ms) .. why .. '\31discard\31' .. entry)
    end
  elseif completions then
    completions.add(string.format('%.0f', ms) .. '\31' .. entry)
  end
end
if completions then
  completions.write()
end
if failures then
  failures.write()
end
if lost > 0 then
  count_up(counters, 'failed', lost)
  count_up(counters, 'acked_and_failed', lost)
end
if tally then
  tally.write()
end
record.concluded = part
if not stored then
  redis.call('SET', closed, cjson.encode(record), 'PX', keep_ms)
elseif last == '1' then
  redis.call('DEL', closed)
else
  redis.call('SET', closed, cjson.encode(record), 'KEEPTTL')
end
return {1}
