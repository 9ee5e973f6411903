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

-- The ids in the markers that are held. MGET answers nil for a key of another type, which SET would overwrite; STRLEN refuses it.
local owners = {}
local function read_owners(first, last)
  local held = redis.call('EXISTS', unpack(KEYS, first, last))
  if held == 0 then
    return
  end
  local found = redis.call('MGET', unpack(KEYS, first, last))
  for i = 1, #found do
    if found[i] then
      owners[first - 5 + i] = found[i]
      held = held - 1
    end
  end
  if held > 0 then
    for i = first, last do
      redis.call('STRLEN', KEYS[i])
    end
  end
end
for first = 5, #KEYS, 1000 do
  read_owners(first, math.min(first + 999, #KEYS))
end

local sequence = tonumber(redis.call('HGET', counters, 'published') or 0)
local stamp = string.format('%012x', math.floor(clock_us() / 1000)) .. '0000'
local reply, entries, owned, fresh, mine = {0}, {}, {}, 0, 0
local KEYS, ARGV, call, format = KEYS, ARGV, redis.call, string.format -- locals: read for every message
for i = 1, count do
  local marker, id = KEYS[4 + i], format('%s-%d', batch, i - 1)
  local owner = owners[i] or (keyed and owned[marker])
  if not owner then
    fresh = fresh + 1
    entries[fresh] = format('1%012x', sequence + fresh) .. stamp .. id .. ARGV[5 + i]
    if keyed then
      owned[marker] = id
    end
  elseif owner == id then
    mine = mine + 1
  else
    reply[#reply + 1] = i - 1
    reply[#reply + 1] = owner
  end
end
reply[1] = fresh + mine

if fresh > 0 then
  redis.call('HINCRBY', counters, 'published', fresh)
  for first = 1, fresh, 1000 do
    redis.call('LPUSH', pending, unpack(entries, first, math.min(first + 999, fresh)))
  end
  local window_ms = ARGV[4]
  for marker, id in pairs(owned) do
    call('PSETEX', marker, window_ms, id) -- as SET with PX, with less work
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
