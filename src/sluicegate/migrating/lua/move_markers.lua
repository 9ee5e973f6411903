-- Hold deduplication keys of another library's queue, for as long as they are held there.
-- Guarantee: a key that a message of this queue holds stays with it.
-- KEYS:
--   1 counters
--   2... buckets           of the markers of the keys
-- ARGV:
--   1 owner                what holds them: the queue that they come from
--   2 known_chain          the chain of marker generations that the client knows
--   3 plan                 how fields and buckets belong together
--   4 fields               of the markers
--   5... lives             of each, in ms
-- Returns: {how many are held by this owner now}; {"chain", chain} when the markers are elsewhere by now
-- Repeat: finds them held.

--- @include clock, marker_chain, marker_changes, markers
redis.call('HLEN', counters)
local chain, moved = chain_of(counters, redis.call('HGET', counters, 'markers'), known_chain)
local ms, longest, count = math.floor(clock_us() / 1000), 1, 0
for i = lives_at, #ARGV do
  longest = math.max(longest, tonumber(ARGV[i]))
end
moved = moved or chain.ensure(ms, longest)
if moved then
  return moved
end
local markers = with_changes(markers_in(plan, fields, KEYS, buckets_at, ms, chain), chain)
for i = 1, markers.count do
  local place = markers.rank and markers.rank[i] or i
  if not markers.owners[place] then
    markers.hold(place, owner, owner, tonumber(ARGV[lives_at + i - 1]), chain.place(ms, longest))
    count = count + 1
  elseif markers.owners[place] == owner then
    count = count + 1
  end
end
return {count}
