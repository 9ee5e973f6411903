-- Delete entries of a stream by id, for all groups that have not been delivered them yet, and free their deduplication
-- keys.
-- Guarantee: deletes only entries that are named, and a marker only while it names its entry.
-- KEYS:
--   1 stream
--   2 counters
--   3 receipt              the answer of this cancel's last step
--   4... buckets           of the markers of the named entries that have a deduplication key
-- ARGV:
--   1 step                 number of this step, 0 to ask for the deduplication keys
--   2 receipt_ms           lifetime of the receipt
--   3 known_chain          the chain of marker generations that the client knows
--   4 plan                 how fields and buckets belong together
--   5 fields               of the markers
--   6... named             per entry: its id, and the number of its marker, 0 for none
-- Returns: {id of an entry that exists or that was deleted, its deduplication key or "", ...}; {"chain", chain} when
--   markers are elsewhere by now
-- Repeat: answered from the receipt.

--- @include count_up, hash_guard, named_markers, named_values, receipt
hash_guard(counters)
step = tonumber(step)
local done = step > 0 and stored_answer(receipt, step)
if done then
  return done
end
redis.call('XLEN', stream)
local markers, moved = named_markers(counters, known_chain, plan, fields, KEYS, buckets_at)
if moved then
  return moved
end
local found, ids = {}, {}
for at = named_at, #ARGV, 2 do
  local id, number = ARGV[at], tonumber(ARGV[at + 1])
  local entry = redis.call('XRANGE', stream, id, id)[1]
  if entry then
    local key = ''
    for i = 1, #entry[2], 2 do
      key = entry[2][i] == 'key' and entry[2][i + 1] or key
    end
    found[#found + 1], found[#found + 2], ids[#ids + 1] = id, key, id
    if step > 0 then
      free_marker(markers, number, id, stream, '')
    end
  end
end
if step == 0 then
  return found
elseif #ids > 0 then
  if markers then
    markers.flush()
  end
  redis.call('XDEL', stream, unpack(ids))
  count_up(counters, 'cancelled', #ids)
end
return store_answer(receipt, step, receipt_ms, found)
