--- @include block_index, ranges
-- Make values of some messages of a block, which was read with its index: one message is an entry.

local function make_block(block, at, positions, count, base, ranks, keys, payloads, ends)
  return string.sub(block.value, 1, 1) .. string.format('%012x', sequence_in(block, at))
    .. string.sub(block.value, 14, 29) .. table.concat({
      block.batch, positions, count, base, ranks, #keys, #payloads, block.headers, keys,
    }, '\31') .. payloads .. ends
end

-- The ranks of some of its messages, counted from the first of them; '' when they are 0, 1, 2 and so on.
local function ranks_of(block, places)
  local ranks, first = {}, sequence_in(block, places[1])
  for i = 1, #places do
    ranks[i] = sequence_in(block, places[i]) - first
  end
  return ranks[#ranks] == #ranks - 1 and '' or to_ranges(ranks)
end

-- The messages at these places, ascending; nil for none. With `renumber`, they get sequences one after the other, as
-- messages that are published without those between them.
local function keep_in_block(block, places, renumber)
  if #places < 2 then
    local entry = places[1] and entry_in(block, places[1])
    return renumber and entry and string.sub(entry, 1, 1) .. string.sub(block.value, 2, 13) .. string.sub(entry, 14)
      or entry
  end
  local positions, keys, payloads, key_ends, payload_ends, key_at, payload_at = {}, {}, {}, {}, {}, 0, 0
  for i = 1, #places do
    local at = places[i]
    positions[i], keys[i], payloads[i] = block.position[at], key_in(block, at), payload_in(block, at)
    key_at, payload_at = key_at + #keys[i], payload_at + #payloads[i]
    key_ends[i], payload_ends[i] = key_at, payload_at
  end
  local format = '<' .. string.rep('I4', #places)
  return make_block(block, renumber and 1 or places[1], to_ranges(positions), #places, '0,0',
    renumber and '' or ranks_of(block, places), table.concat(keys), table.concat(payloads),
    struct.pack(format, unpack(key_ends)) .. struct.pack(format, unpack(payload_ends)))
end

-- The messages at the places from `first` to `last`: substrings of the block, so that a large one is cut quickly.
local function cut_block(block, first, last)
  if first == last then
    return entry_in(block, first)
  end
  local value, places, positions, at = block.value, {}, {}, block.ends_at
  for i = first, last do
    places[#places + 1], positions[#positions + 1] = i, block.position[i]
  end
  local base = string.format('%d,%d', block.key_base + block.keys_to[first - 1],
    block.payload_base + block.payloads_to[first - 1])
  local keys = string.sub(value, block.at + block.keys_to[first - 1], block.at + block.keys_to[last] - 1)
  local payloads = string.sub(value, block.payloads_at + block.payloads_to[first - 1],
    block.payloads_at + block.payloads_to[last] - 1)
  return make_block(block, first, to_ranges(positions), #places, base, ranks_of(block, places), keys, payloads,
    string.sub(value, at + 4 * (first - 1), at + 4 * last - 1)
    .. string.sub(value, at + 4 * (block.count + first - 1), at + 4 * (block.count + last) - 1))
end
