--- @include packed, unread
-- Remove the selected batch of a claim.

-- Put back what a claim leaves of a block: its youngest value takes the block's place, once the others are there.
local function put_rest(pending, batch)
  local older = {}
  for i = #batch.rest - 1, 1, -1 do
    older[#older + 1] = batch.rest[i]
  end
  if #older > 0 then
    redis.call('RPUSH', pending, unpack(older))
  end
  redis.call('LSET', pending, -(batch.scanned + #older + 1), batch.rest[#batch.rest])
end

-- Lower `counters.packed` once the values are gone. An empty list holds no block.
local function settle_packed(pending, counters, batch)
  if redis.call('EXISTS', pending) == 0 then
    redis.call('HDEL', counters, 'packed')
  else
    lower_packed(counters, batch.packed or 0)
  end
end

-- Remove a selected batch from where it was read.
local function remove_batch(returned, pending, batch, unread, counters, packed)
  if batch.ranks > 0 then
    redis.call('ZREMRANGEBYRANK', returned, 0, batch.ranks - 1)
  end
  if batch.rest then
    put_rest(pending, batch)
  end
  if unread and batch.scanned > 0 then
    redis.call('HSET', counters, 'published', batch.sequence)
    advance_group(unread, batch.last, batch.scanned, batch.ended)
  elseif batch.scanned == 1 then
    redis.call('RPOP', pending)
  elseif batch.scanned > 1 then
    redis.call('LTRIM', pending, 0, -(batch.scanned + 1))
  end
  if packed then
    settle_packed(pending, counters, batch)
  end
end
