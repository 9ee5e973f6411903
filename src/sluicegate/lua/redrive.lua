-- Make named dead letters pending again, at the tail, in their first order, with their counts reset.
-- Guarantee: a letter is pending before its record goes; one whose deduplication key another message holds stays dead.
-- KEYS:
--   1 pending
--   2 returned
--   3 delayed
--   4 dead
--   5 dead_records
--   6 counters
--   7 wakeup
--   8 receipt        the answer of this redrive's last step
--   9... markers     of the named letters that have a deduplication key
-- ARGV:
--   1 step           number of this step
--   2 receipt_ms     life of the receipt
--   3 mark           letters buried later than this time in ms have died again and stay
--   4 max_pending_length   pending, returned and delayed messages that the queue may hold, 0 for no bound
--   5 bound_ms       life of a marker that ends with its message
--   6 patient        1: refuse while the mark's millisecond lasts, so that what dies again dies later than the mark
--   7... named       per letter: its id; number of its marker, 0 for none
-- Returns: {letters redriven, number of the first that did not fit or 0, number of a letter that is blocked, ...}; {-1} when it is too early
-- Repeat: answered from the receipt.

--- @include clock
--- @include oom_guard
--- @include wakeup
--- @include count_up
--- @include entry
--- @include marker_owners
--- @include receipt
--- @include named_values
local pending, dead, records, counters, wakeup, receipt = KEYS[1], KEYS[4], KEYS[5], KEYS[6], KEYS[7], KEYS[8]
local step, mark, max_pending_length = tonumber(ARGV[1]), tonumber(ARGV[3]), tonumber(ARGV[4])
oom_guard(dead)
local tokens = redis.call('LLEN', wakeup)
local done = stored_answer(receipt, step)
if done then
  return done
end
if ARGV[6] == '1' and clock_us() < (mark + 1) * 1000 then
  return {-1}
end
redis.call('HLEN', counters)
redis.call('HLEN', records)
local waiting = redis.call('LLEN', pending) + redis.call('ZCARD', KEYS[2]) + redis.call('ZCARD', KEYS[3])
local room = max_pending_length > 0 and math.max(0, max_pending_length - waiting) or math.huge
local owners, named, reply, entries, ids, held = marker_owners(KEYS, 9), read_named_values(ARGV, 7), {0, 0}, {}, {}, {}

-- The letter's entry as it goes, or nil when it is blocked: a stranger's value, or a key that another message holds.
local function entry_to_redrive(one)
  local entry = string.match(redis.call('HGET', records, one.name) or '', '^%d+\31[^\31]*\31[^\31]*\31[^\31]*\31(.*)$')
  if not entry or not is_entry(entry) or id_of(entry) ~= one.name then
    return nil
  end
  local owner = one.marker > 0 and (held[KEYS[8 + one.marker]] or owners[one.marker])
  if owner and owner ~= one.name then
    return nil
  end
  return restamped(entry, 0, 0)
end

for i = 1, #named do
  local one = named[i]
  local buried = tonumber(redis.call('ZSCORE', dead, one.name))
  if buried and buried <= mark then
    local entry = entry_to_redrive(one)
    if not entry then
      reply[#reply + 1] = i
    elseif #entries >= room then
      reply[2] = i
      break
    else
      entries[#entries + 1], ids[#ids + 1] = entry, one.name
      if one.marker > 0 and string.byte(entry) == 50 then
        held[KEYS[8 + one.marker]] = one.name -- freed when it died, and its own again from now on
      end
    end
  end
end
reply[1] = #entries
if #entries > 0 then
  table.sort(entries, function(one, other) return sequence_of(one) < sequence_of(other) end)
  for first = 1, #entries, 1000 do
    redis.call('LPUSH', pending, unpack(entries, first, math.min(first + 999, #entries)))
  end
  for marker, id in pairs(held) do
    redis.call('SET', marker, id, 'PX', math.max(tonumber(ARGV[5]), redis.call('PTTL', marker)))
  end
  drop_dead(dead, records, ids)
  count_up(counters, 'redriven', #entries)
  wake_consumer(wakeup, tokens)
end
return store_answer(receipt, step, ARGV[2], reply)
