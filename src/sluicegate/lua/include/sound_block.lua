--- @include block, block_index
-- A look at a block as a whole.

-- Whether ranges are exactly `count` ascending numbers.
local function counts_to(ranges, count)
  local first, upto = string.match(ranges, '^(%d+)%-(%d+)$')
  if first and upto - first == count - 1 then
    return true
  end
  return numbers_of(ranges, count) ~= nil
end

-- Whether no end from position `at` on is less than the one before, with 0 before the first.
local function ascends(block, at, base)
  local ends, last = {struct.unpack('<' .. string.rep('I4', block.count), block.value, at)}, base
  for i = 1, block.count do
    if ends[i] < last then
      return false
    end
    last = ends[i]
  end
  return true
end

-- The head of a block with a possible index, of which no lists are made: nil where `index_block` returns nil.
local function sound_block(value)
  local block = read_block(value)
  if block and counts_to(block.positions, block.count) and (block.ranks == '' or counts_to(block.ranks, block.count))
    and ascends(block, block.ends_at, block.key_base)
    and ascends(block, block.ends_at + 4 * block.count, block.payload_base) then
    return block
  end
end
