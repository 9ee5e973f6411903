--- @include numbers, packed
-- Count the messages in blocks, page by page: `from` is '0' and then the first item of the answer, '' at the end. A
-- count is of use only if no other call has changed the list since the first page; {'again', 0} if one has. A group has
-- no `pending`.
local MAX_COUNTED_BYTES = 1048576

local function recount_packed(counters, pending, from, limit)
  local found = redis.call('HMGET', counters, 'packed', 'published', 'claimed', 'redriven', 'purged', 'dropped',
    'cancelled_values')
  local length, bytes, chunk = pending and redis.call('LLEN', pending) or 0, 0, 1
  local state = length
  for i = 1, 7 do
    state = state .. ' ' .. (found[i] or '')
  end
  local at, sum, before = string.match(from, '^(%d+) (%d+) (.*)$')
  if before and before ~= state then
    return {'again', 0}
  end
  at, sum = tonumber(at or 0), tonumber(sum or 0)
  local first, last = at, math.min(at + limit, length)
  while at < last and bytes < MAX_COUNTED_BYTES do
    local values = redis.call('LRANGE', pending, at, math.min(at + chunk, last) - 1)
    for i = 1, #values do
      at, bytes, sum = at + 1, bytes + #values[i], sum + messages_in(values[i]) - 1
    end
    chunk = math.max(1, math.min(4 * chunk, 1000, math.ceil((MAX_COUNTED_BYTES - bytes) * (at - first) / bytes)))
  end
  if at < length then
    return {string.format('%d %d %s', at, sum, state), 0}
  elseif sum == to_integer(found[1]) then
    return {'', 0}
  end
  redis.call('HSET', counters, 'packed', sum)
  return {'', 1}
end
