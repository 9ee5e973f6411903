--- @include block
-- The messages in a block.

-- Ends from position `at` on, relative to the first byte that they count from, with 0 before the first; nil when they
-- decrease.
local function ends_of(block, at, base)
  local ends, last = {struct.unpack('<' .. string.rep('I4', block.count), block.value, at)}, 0
  for i = 1, block.count do
    ends[i] = ends[i] - base
    if ends[i] < last then
      return nil
    end
    last = ends[i]
  end
  ends[0] = 0
  return ends
end

-- The numbers in ranges, ascending; nil unless they are exactly `count`.
local function numbers_of(ranges, count)
  local numbers, last = {}, -1
  for first, upto in string.gmatch(ranges, '(%d+)%-?(%d*)') do
    first, upto = tonumber(first), tonumber(upto) or tonumber(first)
    if first <= last or upto < first or #numbers + upto - first >= count then
      return nil
    end
    for number = first, upto do
      numbers[#numbers + 1] = number
    end
    last = upto
  end
  return #numbers == count and numbers or nil
end

-- Read a block with its index: the lists `position` and `rank` (nil when they are 0, 1, 2 and so on), and the ends
-- `keys_to` and `payloads_to`. Returns nil when that is impossible; then the value is foreign.
local function index_block(value)
  local block = read_block(value)
  if not block then
    return nil
  end
  block.sequence = tonumber(string.sub(value, 2, 13), 16)
  block.kind = string.byte(value) == 51 and '1' or '2' -- of its messages
  block.payloads_at = block.at + block.key_bytes
  block.position = numbers_of(block.positions, block.count)
  block.rank = block.ranks ~= '' and numbers_of(block.ranks, block.count) or nil
  block.keys_to = ends_of(block, block.ends_at, block.key_base)
  block.payloads_to = ends_of(block, block.ends_at + 4 * block.count, block.payload_base)
  if not block.position or not block.keys_to or not block.payloads_to or block.ranks ~= '' and not block.rank then
    return nil
  end
  return block
end

-- What belongs to the message at place `i`, from 1 on, of a block with its index.
local function id_in(block, i)
  return block.batch .. '-' .. block.position[i]
end

-- The batch and the position in an id; nothing for an id that no block can have.
local function place_of(id)
  local batch, position = string.match(id, '^(.*)%-(%d+)$')
  if position and (position == '0' or string.byte(position) ~= 48) then
    return batch, tonumber(position)
  end
end

local function sequence_in(block, i)
  return block.sequence + (block.rank and block.rank[i] or i - 1)
end

local function key_in(block, i)
  return string.sub(block.value, block.at + block.keys_to[i - 1], block.at + block.keys_to[i] - 1)
end

local function payload_in(block, i)
  local first = block.payloads_at
  return string.sub(block.value, first + block.payloads_to[i - 1], first + block.payloads_to[i] - 1)
end

-- The entry of a message as far as the end of its key.
local function head_in(block, i)
  return block.kind .. string.format('%012x', sequence_in(block, i)) .. string.sub(block.value, 14, 29)
    .. block.batch .. '-' .. block.position[i] .. '\31' .. key_in(block, i) .. '\31'
end

local function entry_in(block, i)
  return head_in(block, i) .. block.headers .. '\31' .. payload_in(block, i)
end

-- The messages of a block as entries, nil when it is foreign.
local function open_block(value)
  local block, entries = index_block(value), {}
  for i = 1, block and block.count or 0 do
    entries[i] = entry_in(block, i)
  end
  return block and entries
end
