-- The blocks of a lease. The field "b<first slot>" holds one; the field "blocks" lists "<first slot>:<count>" of each,
-- ascending. While its field exists, all slots of a block are held, and it outranks fields of single slots in its
-- range.

-- The blocks that a lease holds, ascending, with the name of their field, and their `first` and `last` slot.
local function blocks_of(key, lease)
  local found, before = {}, 0
  for first, count in string.gmatch(lease.blocks and redis.call('HGET', key, 'blocks') or '', '(%d+):(%d+)') do
    local name, from, upto = 'b' .. first, tonumber(first), tonumber(first) + tonumber(count) - 1
    -- What has another order was written from outside.
    if from > before and upto <= 99999 and redis.call('HEXISTS', key, name) == 1 then
      found[#found + 1], before = {name = name, first = from, last = upto}, upto
    end
  end
  return found
end

-- Returns a function that gives the first block that ends at or behind a slot, and its place; nil for none. It is fast
-- for slots that ascend.
local function block_finder(blocks)
  local near = 1
  return function(slot)
    if near > 1 and blocks[near - 1].last >= slot then
      near = 1
    end
    while blocks[near] and blocks[near].last < slot do
      near = near + 1
    end
    return blocks[near], near
  end
end
