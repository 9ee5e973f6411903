-- Show what is stored of jobs, by their ids.
-- Guarantee: reads only. The answer covers one id at least, and ends early when it grows over its maximum.
-- KEYS:
--   1 tracking
-- ARGV:
--   1 whole                1: payload, result and progress as well; 0: status and request to cancel only
--   2 max_bytes            add no further job once this much is read
--   3... ids
-- Returns: per job {enqueued record, status record, request to cancel, result, progress}, nil for what is not stored,
--   in the order of the ids; fewer jobs than ids when the maximum ended it
-- Repeat: reads again.

local reply, bytes, limit, all = {}, 0, tonumber(max_bytes), whole == '1'
for i = ids_at, #ARGV do
  local id = ARGV[i]
  local found
  if all then
    found = redis.call('HMGET', tracking, 'j:' .. id, 's:' .. id, 'x:' .. id, 'r:' .. id, 'p:' .. id)
  else
    found = redis.call('HMGET', tracking, 's:' .. id, 'x:' .. id)
    table.insert(found, 1, (found[1] or redis.call('HEXISTS', tracking, 'j:' .. id) == 1) and '' or false)
  end
  for part = 1, #found do
    bytes = bytes + #(found[part] or '')
  end
  reply[#reply + 1] = found
  if bytes > limit then
    break
  end
end
return reply
