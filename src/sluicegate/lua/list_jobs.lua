-- List ids of jobs that have ended with a status, those that are kept longest first.
-- Guarantee: reads only, and looks at a bounded number of ended jobs.
-- KEYS:
--   1 tracking
--   2 tracking_ended
-- ARGV:
--   1 status               completed, failed or cancelled
--   2 count                maximum ids
--   3 offset               ended jobs and batches to skip first, whatever their status
--   4 scanned              maximum ended jobs and batches to look at
-- Returns: {1 when there are no more and else 0, offset of the next call, ids...}
-- Repeat: reads again.

count, offset, scanned = tonumber(count), tonumber(offset), tonumber(scanned)
local reply, stop = {0, offset}, offset + scanned
while offset < stop and #reply - 2 < count do
  local size = math.min(100, stop - offset)
  local members = redis.call('ZRANGE', tracking_ended, -(offset + size), -(offset + 1))
  for i = #members, 1, -1 do
    local id = string.match(members[i], '^j:(.+)$')
    local state = id and #reply - 2 < count and redis.call('HGET', tracking, 's:' .. id)
    if state and string.match(state, '^%l+') == status then
      reply[#reply + 1] = id
    end
    offset = offset + 1
    if #reply - 2 >= count then
      break
    end
  end
  if #members < size and #reply - 2 < count then
    reply[1] = 1
    break
  end
end
reply[2] = offset
return reply
