-- Remove the oldest entries of a stream beyond a length or an age, if every group has finished them.
-- Guarantee: removes no entry that a group has not been delivered yet, or that a consumer of another library holds,
--   unless asked to; it counts those that it then removes. Temporary groups keep nothing.
-- KEYS:
--   1 stream
--   2 counters
--   3 groups
-- ARGV:
--   1 max_length           entries that may stay, 0 for any number
--   2 max_age_ms           age that entries may have, 0 for any
--   3 unfinished           1: remove what not every group has finished, too
--   4 exact                1: to the very entry; 0: whole nodes of the stream, which takes less work
--   5 most                 entries that one call removes for each of the two limits
-- Returns: {removed, of these unfinished, length, 1 when there is more to remove, names of the groups that keep what is
--   beyond the limits, names of temporary groups that have expired}
-- Repeat: finds the stream within its limits.

--- @include clock, count_up, group_records, stream_ids
local ms, removed, lost, more = math.floor(clock_us() / 1000), 0, 0, 0
local length, records = redis.call('XLEN', stream), read_group_records(groups)
redis.call('HLEN', counters)
most = tonumber(most)
local LAST_ID = '18446744073709551615-18446744073709551615'
local PAGE = 100 -- entries that an exact trim reads at once

-- The first id that must stay, and the groups for which it must.
local keep, keepers, expired, found = LAST_ID, {}, {}, native_groups(stream)
for i = 1, #found do
  local group, record = found[i], records[found[i].name]
  if record and record.life_ms > 0 then
    expired[#expired + 1] = record.expires_ms <= ms and group.name or nil
  else
    local first = id_behind(group['last-delivered-id'])
    if group.pending > 0 then
      local held = redis.call('XPENDING', stream, group.name)[2]
      first = held and is_before(held, first) and held or first
    end
    if is_before(first, keep) then
      keep, keepers = first, {group.name}
    elseif first == keep then
      keepers[#keepers + 1] = group.name
    end
  end
end

-- Remove at most `limit` entries before an id.
local function remove_before(id, limit)
  if limit <= 0 then
    return 0
  end
  local gone = redis.call('XTRIM', stream, 'MINID', '~', id, 'LIMIT', limit)
  if exact == '1' and gone < limit then
    local page = redis.call('XRANGE', stream, '-', '(' .. id, 'COUNT', math.min(limit - gone, PAGE))
    if #page > 0 then
      gone = gone + redis.call('XTRIM', stream, 'MINID', id_behind(page[#page][1]))
    end
    more = #page == PAGE and 1 or more
  end
  more = gone >= most and 1 or more
  return gone
end

local function trim_before(id, limit)
  limit = math.min(limit, most)
  local finished = is_before(keep, id) and keep or id
  local gone = remove_before(finished, limit)
  if unfinished == '1' and gone < limit and more == 0 and is_before(keep, id) then
    local left = #redis.call('XRANGE', stream, '-', '(' .. keep, 'COUNT', 1000) -- they share a node with others
    local also = remove_before(id, limit - gone)
    gone, lost = gone + also, lost + math.max(0, also - left)
  end
  removed, length = removed + gone, length - gone
end

if tonumber(max_length) > 0 and length > tonumber(max_length) then
  trim_before(LAST_ID, length - tonumber(max_length))
end
local oldest = tonumber(max_age_ms) > 0 and string.format('%.0f-0', math.max(0, ms - tonumber(max_age_ms)))
if oldest then
  trim_before(oldest, most)
end
if removed > 0 then
  count_up(counters, 'trimmed', removed)
end
if lost > 0 then
  count_up(counters, 'trimmed_unfinished', lost)
end
local beyond = tonumber(max_length) > 0 and length > tonumber(max_length) or oldest and is_before(keep, oldest)
local kept = beyond and keep ~= LAST_ID and #redis.call('XRANGE', stream, '-', '(' .. keep, 'COUNT', 1) == 0
return {removed, lost, length, more, kept and keepers or {}, expired}
