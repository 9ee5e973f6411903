--- @include packed, tracked
-- Add a value to the oldest ones, of which so many messages are wanted. Returns how many are wanted after it.
local function add_oldest(self, value, wanted)
  --- @inside block_index, block_pieces
  local messages = messages_in(value)
  local block = messages > wanted and index_block(value)
  if block then
    self.left, self.packed = cut_block(block, wanted + 1, block.count), self.packed + wanted
    return 0
  elseif messages == 1 then
    self.singles[#self.singles + 1] = value
  end
  self.values, self.packed = self.values + 1, self.packed + messages - 1
  return wanted - messages
end

-- Select the oldest `wanted` pending messages, without writing. Returns how many `values` go, what is `left` of the
-- block behind these, by how much the messages that go outnumber the values (`packed`), and the entries that are `lost`
-- when any of them is tracked; no message in a block is.
local function oldest_pending(tracking, pending, wanted)
  local self, chunk, bytes = {values = 0, packed = 0, singles = {}}, 1, 0
  while wanted > 0 do
    local batch = redis.call('LRANGE', pending, -(self.values + chunk), -(self.values + 1))
    for i = #batch, 1, -1 do
      wanted, bytes = wanted > 0 and add_oldest(self, batch[i], wanted) or 0, bytes + #batch[i]
    end
    if #batch < chunk then
      break
    end
    local fitting = math.ceil(1048576 * self.values / math.max(1, bytes))
    chunk = math.max(1, math.min(chunk * 4, wanted, fitting))
  end
  self.lost = any_tracked(tracking, self.singles) and self.singles or {}
  return self
end

local function drop_oldest(pending, counters, oldest)
  if oldest.left then
    redis.call('LSET', pending, -(oldest.values + 1), oldest.left)
  end
  if oldest.values > 0 then
    redis.call('LTRIM', pending, 0, -(oldest.values + 1))
  end
  lower_packed(counters, oldest.packed)
end
