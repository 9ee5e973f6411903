-- Delete named messages of one state with their deduplication markers, or a whole history.
-- Guarantee: deletes only messages that are named and still in that state, and a marker only when its message goes.
-- KEYS:
--   1 source               a list, or a zset of entries or of dead ids
--   2 dead_records         the dead records by id
--   3 leases
--   4 counters
--   5 receipt              the answer of this purge's last step
--   6 tracking             the records of batches and jobs
--   7 tracking_ended       those that ended, by the time when they are removed
--   8 tracking_news        the latest that ended
--   9 pending              the stream of a group, whose markers it shares; of a queue not used
--  10 marker_counters      the totals of the stream of a group, with the chain of its markers; of a queue its own
--  11... buckets           of the markers of the named messages that have a deduplication key
-- ARGV:
--   1 kind                 "oldest": a list, from its right end, whose blocks go as a whole; "zset" and "delayed";
--                        "dead"; "history"
--   2 step                 number of this step
--   3 receipt_ms           lifetime of the receipt
--   4 group                the name of the group of a stream, "" for a queue
--   5 known_chain          the chain of marker generations that the client knows
--   6 plan                 how fields and buckets belong together
--   7 fields               of the markers
--   8... named             per message: its id, or its entry in a zset; number of its marker, 0 for none
-- Returns: {messages deleted}; {"chain", chain} when markers are elsewhere by now
-- Repeat: answered from the receipt.

--- @include add_if_named, clock, count_up, entry, layout, named_markers, named_values, oom_guard, packed, receipt
--- @include tracked, tracking
step = tonumber(step)
oom_guard(leases)
local done = stored_answer(receipt, step)
if done then
  return done
end
local newer = newer_layout(redis.call('HGET', counters, 'layout'))
if newer then return newer end
redis.call('HLEN', dead_records)
if kind == 'history' then
  local count = redis.call('LLEN', source)
  redis.call('UNLINK', source)
  if count > 0 then
    count_up(counters, 'purged', count)
  end
  return store_answer(receipt, step, receipt_ms, {count})
end

local markers, moved = named_markers(marker_counters, known_chain, plan, fields, KEYS, buckets_at)
if moved then return moved end
local values, gone = read_named_values(ARGV, named_at), {}
local entries = {} -- of those that are gone, except the dead and those in blocks, which are never tracked
local number, packed = 0, 0 -- of the values that go, and by how much their messages outnumber them

-- The named messages are at the right end, except those claimed meanwhile: messages that joined since are to their
-- left.
local function find_at_end()
  local by_name, bytes, chunk = {}, 0, 1
  for i = 1, #values do
    by_name[values[i].name] = values[i]
  end
  while #gone < #values do
    chunk = math.min(chunk, #values - #gone)
    local batch = redis.call('LRANGE', source, -(number + chunk), -(number + 1))
    for i = #batch, 1, -1 do
      local before = #gone
      if not add_if_named(by_name, batch[i], gone, entries) then
        return
      end
      number, packed, bytes = number + 1, packed + #gone - before - 1, bytes + #batch[i]
    end
    if #batch < chunk then
      return
    end
    chunk = math.max(1, math.min(chunk * 4, 1000, math.ceil(1048576 * number / math.max(1, bytes))))
  end
end

if kind == 'oldest' then
  redis.call('LLEN', source)
  find_at_end()
else
  redis.call('ZCARD', source)
  for i = 1, #values do
    if redis.call('ZSCORE', source, values[i].name) then
      gone[#gone + 1] = values[i]
      entries[#entries + 1] = kind ~= 'dead' and values[i].name or nil
    end
  end
end

local tally = (kind == 'dead' or any_tracked(tracking, entries))
  and new_tally(tracking, tracking_ended, tracking_news, math.floor(clock_us() / 1000))
local members = {}
for i = 1, #gone do
  local name = gone[i].name
  members[i] = name
  local is_whole = (kind == 'zset' or kind == 'delayed') and is_entry(name)
  free_marker(markers, gone[i].marker, is_whole and id_of(name) or name, pending, group)
end
if markers then
  markers.flush()
end
if #gone > 0 then
  if kind == 'oldest' then
    redis.call('LTRIM', source, 0, -(number + 1))
    lower_packed(counters, packed)
  elseif kind == 'dead' then
    drop_dead(source, dead_records, members)
  else
    drop_members(source, members)
  end
  count_up(counters, 'purged', #gone)
end
if tally then
  tally.moved_all(entries, kind == 'delayed' and 'delayed' or 'waiting', 'gone', {why = 'purged\31\31'})
  tally.dropped_dead(kind == 'dead' and members or {})
  tally.write()
end
return store_answer(receipt, step, receipt_ms, {#gone})
