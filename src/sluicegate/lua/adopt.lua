-- Take over entries of a group's stream that consumers of other libraries hold: they become messages that returned.
-- Guarantee: takes an entry only while it is with such a consumer, and only once it was for `stale_ms`; its message has
--   returned before the consumer's hold on it ends.
-- KEYS:
--   1 stream
--   2 counters
--   3 returned
--   4 wakeup
-- ARGV:
--   1 group
--   2 stale_ms             how long an entry must have been with a consumer; 0 for any time if a consumer is named,
--                          otherwise for no adoption
--   3 max_delivery_count   0 for no maximum; a message at it is delivered once more, alone
--   4 consumer             take what this one holds, and remove it; "" for every consumer
--   5 step                 maximum entries to look at
-- Returns: {messages returned, entries that were deleted from the stream meanwhile, 1 when there is more to look at}
-- Repeat: takes what is stale by then.

--- @include clock, count_up, entry_counts, layout, newest_sequence, numbers, oom_guard, stream_entry, unread, wakeup
local MAX_BYTES, FIRST_MS, LAST_MS = 524288, 1000, 10000 -- a look at all entries follows another in 1 to 10 s
oom_guard(returned)
local tokens, ms, limit = redis.call('LLEN', wakeup), math.floor(clock_us() / 1000), tonumber(max_delivery_count)
read_group(stream, group)
local kept = redis.call('HMGET', counters, 'adopt_from', 'published', 'layout')
local newer = newer_layout(kept[3])
if newer then return newer end
local stale, every = tonumber(stale_ms), consumer == ''
local from = every and kept[1] and string.match(kept[1], '^%d+%-%d+$')
local page = {}
if not every then
  page = redis.call('XPENDING', stream, group, '-', '+', step, consumer)
elseif stale > 0 then
  page = redis.call('XPENDING', stream, group, from and '(' .. from or '-', '+', step)
end

local sequence, make_message, messages, ended_ids, bytes = to_integer(kept[2]), message_maker(), {}, {}, 0
if sequence <= 0 then
  sequence = newest_sequence(nil, returned)
end
local looked = 0
for i = 1, #page do
  if bytes >= MAX_BYTES then
    break
  end
  local id, idle, deliveries = page[i][1], page[i][3], page[i][4]
  looked = i
  if idle >= stale then
    local entry = redis.call('XRANGE', stream, id, id)[1]
    ended_ids[#ended_ids + 1] = id
    if entry then
      local most = limit > 0 and math.max(limit - 1, 1) or MAX_DELIVERIES
      sequence = sequence + 1
      local message = make_message(id, entry[2], sequence, math.max(1, math.min(deliveries, most)))
      messages[#messages + 1], bytes = {sequence, message}, bytes + #message
    end
  end
end
local more = looked < #page or #page == tonumber(step)

for i = 1, #messages do
  redis.call('ZADD', returned, messages[i][1], messages[i][2])
end
if #messages > 0 then
  redis.call('HSET', counters, 'published', string.format('%.0f', sequence))
  count_up(counters, 'adopted', #messages)
  wake_consumer(wakeup, tokens)
end
for i = 1, #ended_ids do
  redis.call('XACK', stream, group, ended_ids[i])
end
if not every then
  more = more and #ended_ids > 0
  if #redis.call('XPENDING', stream, group, '-', '+', 1, consumer) == 0 then
    redis.call('XGROUP', 'DELCONSUMER', stream, group, consumer)
  end
elseif more then
  redis.call('HSET', counters, 'adopt_from', page[looked][1], 'adopt_at', string.format('%.0f', ms))
else
  local pause = stale > 0 and math.max(FIRST_MS, math.min(LAST_MS, stale / 10)) or LAST_MS
  redis.call('HDEL', counters, 'adopt_from')
  redis.call('HSET', counters, 'adopt_at', string.format('%.0f', ms + pause))
end
return {#messages, #ended_ids - #messages, more and 1 or 0}
