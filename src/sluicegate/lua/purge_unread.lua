-- Move a group of a stream behind what it has not read, in bounded steps. The messages stay in the stream, for the
-- stream's other groups.
-- Guarantee: passes no message that came after the purge began, and ends the group's share in the deduplication marker
--   of each message that it passes.
-- KEYS:
--   1 stream
--   2 counters
--   3 receipt              the answer of this purge's last step
--   4 marker_counters      the totals of the stream, with the chain of its markers
--   5... buckets           of the markers of the messages that the previous answer named
-- ARGV:
--   1 group
--   2 step                 number of this step
--   3 receipt_ms           lifetime of the receipt
--   4 mark                 id of the last message when the purge began, "" to ask for it
--   5 max_values           messages to look at
--   6 known_chain          the chain of marker generations that the client knows
--   7 plan                 how fields and buckets belong together
--   8 fields               of these markers
--   9... named             ids of the messages of these markers
-- Returns: {mark, messages passed, 1 when more are left, id and deduplication key of a message whose marker the next
--   step needs, ...}; {"chain", chain} when the markers are elsewhere by now
-- Repeat: answered from the receipt.

--- @include count_up, hash_guard, named_markers, named_values, receipt, stream_ids, unread
local MAX_BYTES, MAX_NAMED = 4194304, 500
hash_guard(counters)
step = tonumber(step)
local done = stored_answer(receipt, step)
if done then
  return done
end
local markers, moved = named_markers(marker_counters, known_chain, plan, fields, KEYS, buckets_at)
if moved then
  return moved
end
local unread, numbers = read_group(stream, group), {}
for at = named_at, #ARGV do
  numbers[ARGV[at]] = at - named_at + 1
end
if mark == '' then
  local last = redis.call('XREVRANGE', stream, '+', '-', 'COUNT', 1)[1]
  mark = last and last[1] or unread.position
end

local reply, passed, last, over, open = {mark, 0, 0}, 0, nil, false, true
local function visit(id, fields)
  over = over or is_before(mark, id)
  if over then
    return
  end
  local key, bound = '', false
  for at = 1, #fields - 1, 2 do
    key = fields[at] == 'key' and fields[at + 1] or key
    bound = bound or fields[at] == 'policy' and fields[at + 1] == 'until_acked'
  end
  if bound and key ~= '' and not numbers[id] then
    open = false -- it waits for its marker, as do those behind it
    if #reply < 3 + 2 * MAX_NAMED then
      reply[#reply + 1], reply[#reply + 2] = id, key
    end
  elseif open then
    passed, last = passed + 1, id
    if numbers[id] then
      free_marker(markers, numbers[id], id, stream, group)
    end
  end
end

local seen, ended = read_entries(stream, unread.position, tonumber(max_values), MAX_BYTES, visit)
if passed > 0 then
  count_up(counters, 'purged', passed)
  count_up(counters, 'published', passed) -- which counts what the group has read
  advance_group(unread, last, passed, ended and passed == seen)
end
reply[2], reply[3] = passed, (not open or not over and not ended) and 1 or 0
return store_answer(receipt, step, receipt_ms, reply)
