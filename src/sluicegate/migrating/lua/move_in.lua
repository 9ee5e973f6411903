-- Move messages or jobs of another library into a queue, with the times and deliveries that they had there.
-- Guarantee: a page enters once and whole, however often and from wherever it is sent.
-- KEYS:
--   1 pending
--   2 returned             messages that were delivered before
--   3 counters
--   4 wakeup
--   5 dead
--   6 dead_records
--   7 completed
--   8 tracking             the records of jobs
--   9 tracking_ended       those that ended, by the time when they are removed
--  10 moved                by source, the last page that entered
-- ARGV:
--   1 origin               the source
--   2 from                 the page that must have entered last; "" for any
--   3 page                 "<number>-<number>", greater than those before it
--   4 state                waiting, dead or completed
--   5 kind                 first byte of the entries: "1" of messages, "7" of jobs
--   6 keep_ms              how long `moved` is kept from now on
--   7... values            per message: its entry from the time on; "" or "ms US reason US error type US error text" of
--                          a dead one, "ms" of a completed one. Per job also its kind, its state or "", its result or
--                          "", and how long its record lives in ms
-- Returns: {messages that entered}; {-1} when the page had entered before; {-2, last page} when another one than `from`
--   entered last; {-4, position, ...} when nothing entered, because jobs have ids that are known
-- Repeat: answers {-1}. Refused for memory like a publish, because it needs as much.

--- @include clock, count_up, dead, newest_sequence, stream_ids, wakeup
local MESSAGE_VALUES, JOB_VALUES = 2, 6
local tokens, fresh, width = redis.call('LLEN', wakeup), 0, kind == '7' and JOB_VALUES or MESSAGE_VALUES
redis.call('HLEN', counters)
redis.call('ZCARD', dead)
redis.call('HLEN', dead_records)
redis.call('LLEN', completed)
redis.call('HLEN', tracking)
redis.call('ZCARD', tracking_ended)
redis.call('LLEN', pending)
redis.call('ZCARD', returned)
local last = redis.call('HGET', moved, origin)
if last and not is_before(last, page) then
  return {-1}
elseif from ~= '' and (last or '0-0') ~= from then
  return {-2, last or ''}
end

local ms, published = math.floor(clock_us() / 1000), redis.call('HGET', counters, 'published')
local sequence = last_sequence(counters, published, pending, returned)
local known, entries, scored, records, fields, lives = {-4}, {}, {}, {}, {}, {}
for i = values_at, #ARGV, width do
  local rest, note = ARGV[i], ARGV[i + 1]
  local id = string.match(rest, '^[^\31]+', 17)
  if kind == '7' and redis.call('HEXISTS', tracking, 'j:' .. id) == 1 then
    known[#known + 1] = (i - values_at) / width
  else
    fresh = fresh + 1
    local entry = kind .. string.format('%012x', sequence + fresh) .. rest
    if state == 'dead' then
      records[#records + 1] = {id, entry, note}
    elseif state == 'completed' then
      entries[#entries + 1] = note .. '\31' .. entry
    elseif string.sub(rest, 13, 15) ~= '000' then
      scored[#scored + 1], scored[#scored + 2] = sequence + fresh, entry
    else
      entries[#entries + 1] = entry
    end
    if kind == '7' then
      local payload = string.match(rest, '^[^\31]*\31[^\31]*\31[^\31]*\31(.*)$')
      local record = string.format('%s\31%.0f\31', ARGV[i + 2], tonumber(string.sub(rest, 1, 12), 16)) .. payload
      fields[#fields + 1], fields[#fields + 2] = 'j:' .. id, record
      if ARGV[i + 3] ~= '' then
        fields[#fields + 1], fields[#fields + 2] = 's:' .. id, ARGV[i + 3]
      end
      if ARGV[i + 4] ~= '' then
        fields[#fields + 1], fields[#fields + 2] = 'r:' .. id, ARGV[i + 4]
      end
      if state ~= 'waiting' then
        lives[#lives + 1], lives[#lives + 2] = string.format('%.0f', ms + ARGV[i + 5]), 'j:' .. id
      end
    end
  end
end

if #known > 1 then
  return known
end

local function in_chunks(command, key, values)
  for first = 1, #values, 1000 do
    redis.call(command, key, unpack(values, first, math.min(first + 999, #values)))
  end
end

local total = string.format('%.0f', sequence + fresh) -- `jobs` tells a queue of jobs from a queue of messages
redis.call('HSET', counters, 'published', total, unpack(kind == '7' and {'jobs', 1} or {}))
in_chunks('HSET', tracking, fields)
in_chunks('ZADD', tracking_ended, lives)
in_chunks('ZADD', returned, scored)
if state ~= 'completed' or kind ~= '7' then
  in_chunks('LPUSH', state == 'completed' and completed or pending, entries)
end
for i = 1, #records do
  local at, why = string.match(records[i][3], '^(%d+)\31(.*)$')
  bury(dead, dead_records, tonumber(at), records[i][2], records[i][1], why)
end
if state == 'waiting' then
  wake_consumer(wakeup, tokens)
elseif fresh > 0 then
  count_up(counters, state == 'dead' and 'buried' or 'acked', fresh)
end
redis.call('HSET', moved, origin, page)
redis.call('PEXPIRE', moved, keep_ms)
return {fresh}
