-- Make messages pending, except those whose deduplication key is held.
-- Guarantee: each position of a batch enters the queue at most once, and its outcome is the same on every repeat within the allowed age.
-- KEYS:
--   1 pending
--   2 counters
--   3 bell
--   4 receipt        outcomes of this batch, where markers may not outlive its retries
--   5... markers     one per message, or none when the batch has no deduplication keys
-- ARGV:
--   1 batch          id of the batch; message i is "<batch>-<i>", from 0
--   2 age_ms         age of the batch at this attempt
--   3 oldest_ms      the greatest age at which a repeat is still known to be harmless
--   4 window_ms      life of a marker
--   5 receipt_ms     life of the receipt, 0 for none
--   6... parts       per message: US key US headers US payload
-- Returns: {accepted, position, owner id, position, owner id, ...} with a pair per duplicate; {-1} when the batch is too old.
-- Repeat: finds the receipt, or its own ids in the markers, and answers as the first time.

--- @include clock
--- @include bell
local pending, counters, bell, receipt = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local batch, receipt_ms, count, keyed = ARGV[1], tonumber(ARGV[5]), #ARGV - 5, #KEYS > 4
local tokens = redis.call('LLEN', bell)
redis.call('LLEN', pending)
redis.call('HLEN', counters)
if receipt_ms > 0 then
  local outcomes = redis.call('GET', receipt)
  if outcomes then
    return cjson.decode(outcomes)
  end
end
if tonumber(ARGV[2]) > tonumber(ARGV[3]) then
  return {-1}
end

local owners = {}
if keyed then
  for first = 5, #KEYS, 1000 do
    local found = redis.call('MGET', unpack(KEYS, first, math.min(first + 999, #KEYS)))
    for i = 1, #found do
      owners[first - 5 + i] = found[i]
    end
  end
end
local reply, fresh, seen, mine = {0}, {}, {}, 0
for i = 1, count do
  local owner = owners[i] or (keyed and seen[KEYS[4 + i]])
  if not owner then
    fresh[#fresh + 1] = i
    if keyed then
      seen[KEYS[4 + i]] = batch .. '-' .. (i - 1)
    end
  elseif owner == batch .. '-' .. (i - 1) then
    mine = mine + 1
  else
    reply[#reply + 1] = i - 1
    reply[#reply + 1] = owner
  end
end
reply[1] = #fresh + mine

if #fresh > 0 then
  local sequence = redis.call('HINCRBY', counters, 'published', #fresh) - #fresh
  local stamp = string.format('%012x', math.floor(clock_us() / 1000)) .. '0000'
  local entries = {}
  for at = 1, #fresh do
    local i = fresh[at]
    entries[at] = string.format('1%012x', sequence + at) .. stamp .. batch .. '-' .. (i - 1) .. ARGV[5 + i]
  end
  for first = 1, #entries, 1000 do
    redis.call('LPUSH', pending, unpack(entries, first, math.min(first + 999, #entries)))
  end
  if keyed then
    local window_ms = ARGV[4]
    for at = 1, #fresh do
      local i = fresh[at]
      redis.call('SET', KEYS[4 + i], batch .. '-' .. (i - 1), 'PX', window_ms)
    end
  end
  ring(bell, tokens)
end
if #reply > 1 then
  redis.call('HINCRBY', counters, 'duplicates', (#reply - 1) / 2)
end
if receipt_ms > 0 then
  redis.call('SET', receipt, cjson.encode(reply), 'PX', receipt_ms)
end
return reply
