--- @include numbers
-- The record of a batch: a field per count, so that its status costs the same for any number of messages.
local BATCH_COUNTS = {'delayed', 'in_flight', 'done', 'dead', 'gone'}
local WEEK_MS = 604800000

-- Change the counts of a batch by what moved. A batch is complete once it is sealed and all its messages are done, dead
-- or gone: the time is written once, and removed again when a redrive makes one of them wait. A record that was removed
-- stays removed.
local function write_batch(hash, ended, batch, changes, ms, over)
  local prefix = 'b:' .. batch .. ':'
  local found = redis.call('HMGET', hash, prefix .. 'total', prefix .. 'delayed', prefix .. 'in_flight',
    prefix .. 'done', prefix .. 'dead', prefix .. 'gone', prefix .. 'sealed', prefix .. 'ended', prefix .. 'ttl_ms')
  if not found[1] then
    return
  end
  local total, counts = to_integer(found[1]) + (changes.total or 0), {}
  local fields = {}
  if changes.total then
    fields[1], fields[2] = prefix .. 'total', string.format('%.0f', total)
  end
  for i = 1, #BATCH_COUNTS do
    local name = BATCH_COUNTS[i]
    local change = changes[name] or 0
    counts[name] = to_integer(found[i + 1]) + change
    if change ~= 0 then
      fields[#fields + 1], fields[#fields + 2] = prefix .. name, string.format('%.0f', counts[name])
    end
  end
  local is_complete = found[7] and counts.done + counts.dead + counts.gone >= total
  if is_complete and not found[8] then
    fields[#fields + 1], fields[#fields + 2] = prefix .. 'ended', string.format('%.0f', ms)
  end
  if #fields > 0 then
    redis.call('HSET', hash, unpack(fields))
  end
  if is_complete and not found[8] then
    local life = found[9] and to_integer(found[9]) or WEEK_MS
    redis.call('ZADD', ended, ms + life, 'b:' .. batch)
    over[#over + 1] = 'b:' .. batch
  elseif found[8] and not is_complete then
    redis.call('HDEL', hash, prefix .. 'ended')
    redis.call('ZREM', ended, 'b:' .. batch)
  end
end
