-- Blocks among what a claim selects. A batch with a block has `packed`, how much less `counters.packed` becomes, and,
-- if its last block is larger than the room, `rest`: the values that take its place, the oldest first.
local FEW = 16 -- a smaller room is filled with single messages, so that a large block is not cut for each of them

-- Take a value that is no entry, with room for `left` messages; `first`: it is the first value of the batch. Returns
-- how many messages it took.
local function take_block(batch, value, left, first)
  --- @inside block_index, block_pieces, sound_block
  local block, at = sound_block(value), #batch.taken + 1
  if not block then -- if it was a block once, `packed` stays too high until the list is empty, or is recounted
    batch.foreign[#batch.foreign + 1] = value
    return 0
  end
  batch.packed = (batch.packed or 0) + math.min(left, block.count - 1)
  if block.count <= left then
    batch.taken[at], batch.counts[at] = value, block.count
    return block.count
  end
  block = index_block(value)
  if not first or left >= FEW then
    batch.taken[at], batch.counts[at] = cut_block(block, 1, left), left > 1 and left or nil
    batch.rest = {cut_block(block, left + 1, block.count)}
    return left
  end
  batch.rest, batch.packed = {}, block.count - 1
  for i = 1, block.count do
    if i <= left then
      batch.taken[i] = entry_in(block, i)
    else
      batch.rest[i - left] = entry_in(block, i)
    end
  end
  return left
end
