--- @include block, block_index, block_pieces, named_values
-- Find the named messages on a page of a list: `found` gets their numbers among `values` (`gone`), the `entries` of
-- those in no block, and for each stored value that holds some its place in the list and what is left of it (`places`).
-- `packed` is by how much the messages that go outnumber the values that go.

-- Add what is named of one value at a place of the list. Of a block whose batch is not named, only the head is read.
local function add_named(found, by_name, by_batch, place, value)
  local head = read_block(value)
  local numbers = head and by_batch[head.batch]
  local block = numbers and index_block(value)
  local number, gone, entries, left = not head and by_name[name_of(value)], found.gone, found.entries, {}
  local before = #gone
  if number then
    gone[before + 1], entries[#entries + 1] = number, value
  end
  for i = 1, block and block.count or 0 do
    number = numbers[block.position[i]]
    if number then
      gone[#gone + 1] = number
    else
      left[#left + 1] = i
    end
  end
  if #gone > before then
    found.places[#found.places + 1] = {at = place, left = block and keep_in_block(block, left)}
    found.packed = found.packed + #gone - before - (#left > 0 and 0 or 1)
  end
end

local function find_on_page(source, values, first, last)
  local found, by_name, by_batch = {gone = {}, entries = {}, places = {}, packed = 0}, {}, {}
  for i = 1, #values do
    by_name[values[i].name] = i
    local batch, position = place_of(values[i].name)
    if batch then
      by_batch[batch] = by_batch[batch] or {}
      by_batch[batch][position] = i
    end
  end
  local at, bytes, chunk = first, 0, 1
  while at <= last and #found.gone < #values do
    local batch = redis.call('LRANGE', source, at, math.min(at + chunk - 1, last))
    for i = 1, #batch do
      add_named(found, by_name, by_batch, at + i - 1, batch[i])
      bytes = bytes + #batch[i]
    end
    if #batch == 0 then
      break
    end
    at = at + #batch
    chunk = math.max(1, math.min(chunk * 4, 100, math.ceil(1048576 * (at - first) / math.max(1, bytes))))
  end
  return found
end
