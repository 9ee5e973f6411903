-- Read the slots of a lease from `first` to `last` that are still held, ascending, with their values: at most `limit`
-- messages, and no more once `max_bytes` are read. A block with one of these slots is read whole, under its first slot;
-- `blocks` are those of the lease, as `blocks_of` finds them. Also returns how many messages were read.
local function read_slots(key, first, last, limit, max_bytes, blocks)
  local slots, values, bytes, messages, chunk, at = {}, {}, 0, 0, 1, 1
  while first <= last and messages < limit and bytes < max_bytes do
    while blocks[at] and blocks[at].last < first do
      at = at + 1
    end
    local block, count = blocks[at], #slots
    if block and block.first <= first then
      slots[count + 1], values[count + 1] = block.first, redis.call('HGET', key, block.name)
      messages, bytes = messages + block.last - first + 1, bytes + #values[count + 1]
      first = block.last + 1
    else
      local names, upto = {}, math.min(first + chunk - 1, last, first + limit - messages - 1)
      for slot = first, block and math.min(upto, block.first - 1) or upto do
        names[#names + 1] = slot
      end
      local found = redis.call('HMGET', key, unpack(names))
      for i = 1, #names do
        if found[i] then
          count, messages, bytes = count + 1, messages + 1, bytes + #found[i]
          slots[count], values[count] = names[i], found[i]
        end
      end
      first, chunk = first + #names, chunk * 4
    end
    -- The size of the values so far limits the next chunk, so that a step reads little more than it may.
    local fitting = bytes > 0 and math.ceil((max_bytes - bytes) * messages / bytes) or math.huge
    chunk = math.max(1, math.min(chunk, 1000, fitting))
  end
  return slots, values, messages
end
