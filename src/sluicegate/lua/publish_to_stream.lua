-- Append messages to a stream, except those whose deduplication key is held, and wake the stream's groups.
-- Guarantee: each position of a batch enters the stream at most once, and every repeat within the allowed age has the
--   same outcome.
-- KEYS:
--   1 stream
--   2 counters
--   3 receipt              outcomes of this batch, where markers may not outlive its retries
--   4... others            the wake-up of each named group; then the buckets of the markers of the messages' keys
-- ARGV:
--   1 batch                id of the batch, which its markers carry behind the id of their message
--   2 age_ms               age of the batch at this attempt
--   3 oldest_ms            the greatest age at which a repeat is still known to be harmless
--   4 window_ms            lifetime of a marker
--   5 receipt_ms           lifetime of the receipt, 0 for none
--   6 kind                 "2": markers are freed as messages end, which their entries show in the field `policy`
--   7 known                number of groups that are named
--   8 known_chain          the chain of marker generations that the client knows
--   9 plan                 how fields and buckets belong together
--  10 fields               of the markers of the messages' deduplication keys, "" without keys
--  11... values            names of groups; then per message: US key US headers US payload
-- Returns: {accepted, id of the first message that this call appended, {position, owner id, ...} with a pair per
--   duplicate, {position, id, ...} with a pair per message that an earlier attempt appended, length of the stream,
--   names of all groups if others were named}. The messages that this call appended have consecutive sequence numbers.
--   {-1} when the batch is too old; {"chain", chain} when the markers are elsewhere by now, and
--   {"chain", chain, answer} when this call changed the chain
-- Repeat: finds the receipt, or its own batch in the markers, and answers as the first time. It writes to a receipt
--   that it finds, because WAIT answers for the last write of its connection.

--- @include clock, count_up, group_notes, group_wakeups, new_markers, stored_outcomes
local receipt_life, buckets_at, parts_at = tonumber(receipt_ms), others_at + known, values_at + known
local length = redis.call('XLEN', stream)
redis.call('HLEN', counters)
local outcomes = receipt_life > 0 and stored_outcomes(receipt, receipt_life)
if outcomes then
  return outcomes
end
if tonumber(age_ms) > tonumber(oldest_ms) then
  return {-1}
end
local window, ms = tonumber(window_ms), math.floor(clock_us() / 1000)
local markers, moved = new_markers(counters, redis.call('HGET', counters, 'markers'), known_chain, plan, fields, KEYS,
  buckets_at, ms, window, window)
if moved then
  return moved
end
local wakeups = group_wakeups(stream, KEYS, others_at, ARGV, values_at, tonumber(known))

local owners, names, rank, mine = markers.owners, markers.names, markers.rank, '\31' .. batch
local duplicates, own, owned, taken, fresh, first, stamp, sequence = {}, {}, {}, {}, 0, '', '', 0
local ARGV, call, match, format, batch = ARGV, redis.call, string.match, string.format, batch
local before_parts, bound = parts_at - 1, kind == '2'
mine = mine .. (bound and table.concat(group_notes(stream)) or '')

local function append(id, part)
  local key, headers, payload = match(part, '^\31([^\31]*)\31([^\31]*)\31(.*)$')
  if bound then
    if headers == '' then
      return call('XADD', stream, id, 'data', payload, 'key', key, 'policy', 'until_acked')
    end
    return call('XADD', stream, id, 'data', payload, 'headers', headers, 'key', key, 'policy', 'until_acked')
  elseif headers ~= '' and key ~= '' then
    return call('XADD', stream, id, 'data', payload, 'headers', headers, 'key', key)
  elseif headers ~= '' then
    return call('XADD', stream, id, 'data', payload, 'headers', headers)
  elseif key ~= '' then
    return call('XADD', stream, id, 'data', payload, 'key', key)
  end
  return call('XADD', stream, id, 'data', payload)
end

for i = 1, #ARGV - before_parts do
  local at = rank and rank[i] or i
  local name = names[at]
  local owner = name and (owned[name] or owners[at])
  if not owner then
    -- Redis makes the first id. The others follow it, because an explicit id takes less work.
    local id = fresh > 0 and sequence < 9e15 and format('%s-%d', stamp, sequence + fresh) or '*'
    id = append(id, ARGV[before_parts + i])
    if fresh == 0 then
      first, stamp, sequence = id, match(id, '^(%d+)%-(%d+)$')
      sequence = tonumber(sequence)
    end
    fresh = fresh + 1
    if name then
      owned[name], taken[at] = id, id
    end
  else
    -- In this batch, the first message under a key owns its marker, and the others are its duplicates.
    local id, writer = match(owner, '^([^\31]*)\31?([^\31]*)')
    local list = writer == batch and not owned[name] and own or duplicates
    list[#list + 1] = i - 1
    list[#list + 1] = id
    owned[name] = owned[name] or writer == batch and id
  end
end
if fresh > 0 then
  markers.write(taken, '', mine, length)
  count_up(counters, 'published', fresh)
  wakeups.ring()
end
if #duplicates > 0 then
  count_up(counters, 'duplicates', #duplicates / 2)
end
local reply = {fresh + #own / 2, first, duplicates, own, length + fresh}
if receipt_life > 0 then
  redis.call('SET', receipt, cjson.encode(reply), 'PX', receipt_ms)
end
reply[6] = wakeups.others
return markers.told(reply)
