-- Repair one part of what no longer agrees after keys or values were lost or overwritten from outside.
-- Guarantee: moves only what the structures hold, so that it may run beside any other call; a message is kept before it
--   is dropped.
-- KEYS:
--   1 leases
--   2 counters
--   3 wakeup
--   4 pending              a list; of a group, its stream
--   5 returned
--   6 set_aside            messages of kinds that only a newer version knows
--   7 dead
--   8 dead_records
-- ARGV:
--   1 part                 "counters": a total that is no number starts again; "packed": the messages in blocks are
--                        counted; "aside": messages that can be read by now are requeued; "letters": dead messages
--                        without a record; "records": records without a dead message
--   2 from                 aside and letters: values to skip; records: a cursor; packed: as the previous answer says
--   3 max_values           to look at
--   4 group                the name of the group of a stream, "" for a queue
-- Returns: {place of the next call, "" at the end; values repaired}; packed: {"again", 0} when `pending` has changed
-- Repeat: repairs what there is to repair by then.

--- @include block_index, clock, entry, entry_sequence, layout, newest_sequence, numbers, oom_guard, recount_packed
--- @include wakeup
local limit, repaired = tonumber(max_values), 0
oom_guard(leases)
local tokens = redis.call('LLEN', wakeup)
local newer = newer_layout(redis.call('HGET', counters, 'layout'))
if newer then return newer end
redis.call(group == '' and 'LLEN' or 'XLEN', pending)
redis.call('ZCARD', returned)
redis.call('ZCARD', set_aside)
redis.call('ZCARD', dead)
redis.call('HLEN', dead_records)

local function reset_counters()
  local found = redis.call('HGETALL', counters)
  for i = 1, #found, 2 do
    local number = string.format('%.0f', to_integer(found[i + 1]))
    if found[i] ~= 'paused' and found[i] ~= 'recount' and found[i] ~= 'adopt_from' and found[i] ~= 'markers'
      and found[i + 1] ~= number then
      redis.call('HSET', counters, found[i], number)
      repaired = repaired + 1
    end
  end
  local last = newest_sequence(group == '' and pending, returned)
  if last > to_integer(redis.call('HGET', counters, 'published')) then -- else new messages would go before waiting ones
    redis.call('HSET', counters, 'published', string.format('%.0f', last))
    repaired = repaired + 1
  end
  return {'', repaired}
end

local function requeue_readable(skip)
  local values, kept = redis.call('ZRANGE', set_aside, skip, skip + limit - 1), 0
  for i = 1, #values do
    local entries = is_entry(values[i]) and {values[i]} or open_block(values[i])
    for at = 1, entries and #entries or 0 do
      redis.call('ZADD', returned, sequence_of(entries[at]), entries[at])
    end
    if entries then
      redis.call('ZREM', set_aside, values[i])
      repaired = repaired + #entries
    else
      kept = kept + 1
    end
  end
  if repaired > 0 then
    wake_consumer(wakeup, tokens)
  end
  local left = redis.call('ZCARD', set_aside)
  if to_integer(redis.call('HGET', counters, 'set_aside')) ~= left then
    redis.call('HSET', counters, 'set_aside', left)
  end
  return {#values < limit and '' or string.format('%.0f', skip + kept), repaired}
end

local function drop_without_record(skip)
  local ids, kept = redis.call('ZRANGE', dead, skip, skip + limit - 1), 0
  for i = 1, #ids do
    if redis.call('HEXISTS', dead_records, ids[i]) == 0 then
      repaired = repaired + redis.call('ZREM', dead, ids[i])
    else
      kept = kept + 1
    end
  end
  return {#ids < limit and '' or string.format('%.0f', skip + kept), repaired}
end

local function add_missing_dead(cursor)
  local page = redis.pcall('HSCAN', dead_records, cursor, 'COUNT', limit)
  if page.err then
    return {'', 0} -- a user without the right to HSCAN does without this part
  end
  local ms = math.floor(clock_us() / 1000)
  for i = 1, #page[2], 2 do
    local buried = to_integer(string.match(page[2][i + 1], '^(%d+)\31'))
    repaired = repaired + redis.call('ZADD', dead, 'NX', buried > 0 and buried or ms, page[2][i])
  end
  return {page[1] == '0' and '' or page[1], repaired}
end

if part == 'counters' then
  return reset_counters()
elseif part == 'packed' then
  return recount_packed(counters, group == '' and pending, from, limit)
elseif part == 'aside' then
  return requeue_readable(tonumber(from))
elseif part == 'letters' then
  return drop_without_record(tonumber(from))
end
return add_missing_dead(from)
