-- Move a group of a stream back, so that it delivers messages again.
-- Guarantee: moves the position once per replay, and never forward, which would skip messages.
-- KEYS:
--   1 stream
--   2 receipt              the answer of this replay
--   3 wakeup               of the group
-- ARGV:
--   1 group
--   2 position             id behind which the group continues
--   3 receipt_ms           lifetime of the receipt
-- Returns: {1 when it was moved, 0 when it has not read so far yet, -1 when there is no such group; its position before
--   this}
-- Repeat: answered from the receipt.

--- @include group_records, receipt, stream_ids, wakeup
local done = stored_answer(receipt, 1)
if done then
  return done
end
local tokens, native = redis.call('LLEN', wakeup), native_group(stream, group)
if not native then
  return {-1, ''}
end
local before = native['last-delivered-id']
if is_before(before, position) then
  return {0, before}
end
redis.call('LREM', wakeup, 0, '') -- no token is empty; servers before 7.0 refuse XGROUP for memory in a first write
redis.call('XGROUP', 'SETID', stream, group, position)
wake_consumer(wakeup, tokens)
return store_answer(receipt, 1, receipt_ms, {1, before})
