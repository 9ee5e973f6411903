--- @include block_index, named_values
-- Add what `by_name` has for the messages of a stored value to `gone`, and a value that is no block to `entries`.
-- Returns false, and adds nothing, unless it has all of them.
local function add_if_named(by_name, value, gone, entries)
  local block, names = index_block(value), {}
  for i = 1, block and block.count or 1 do
    names[i] = by_name[block and id_in(block, i) or name_of(value)]
    if not names[i] then
      return false
    end
  end
  for i = 1, #names do
    gone[#gone + 1] = names[i]
  end
  entries[#entries + 1] = not block and value or nil
  return true
end
