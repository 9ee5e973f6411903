-- A block is one value in `pending`, or of a lease, that holds 2 to 250 messages of one publish. By position, as in an
-- entry: kind 3, or 4 when markers end with their messages, sequence of the first message, time, "0000"; then
--   batch US positions US count US base US ranks US key bytes US payload bytes US headers US
-- and keys, payloads, ends of keys and ends of payloads (each a u32, little endian). A message has the id
-- "<batch>-<position>". Its sequence is that of the first plus its rank; `ranks` is empty when they are 0, 1, 2 and so
-- on. `base` is "k,p": what to subtract from the ends of keys and of payloads, so that a piece is cut by substrings.
local BLOCK = '^([^\31]+)\31([%d,-]+)\31(%d+)\31(%d+),(%d+)\31([%d,-]*)\31(%d+)\31(%d+)\31([^\31]*)\31()'
local MAX_IN_BLOCK = 250

-- Read the head of a block, in the same time for any block: nil for every other value. Only `index_block` reads the
-- ends, which may be impossible.
local function read_block(value)
  local _, digits = string.find(value, '^[34]%x*')
  if not digits or digits < 29 or string.sub(value, 26, 29) ~= '0000' then
    return nil
  end
  local batch, positions, count, key_base, payload_base, ranks, key_bytes, payload_bytes, headers, at =
    string.match(value, BLOCK, 30)
  count, key_bytes, payload_bytes = tonumber(count), tonumber(key_bytes), tonumber(payload_bytes)
  if not batch or count < 2 or count > MAX_IN_BLOCK then
    return nil
  end
  local block = {
    value = value, batch = batch, positions = positions, count = count, key_base = tonumber(key_base),
    payload_base = tonumber(payload_base), ranks = ranks, key_bytes = key_bytes, payload_bytes = payload_bytes,
    headers = headers, at = at, ends_at = at + key_bytes + payload_bytes,
  }
  local length = block.ends_at + 8 * count - 1
  if #value ~= length or struct.unpack('<I4', value, block.ends_at + 4 * count - 4) ~= block.key_base + key_bytes
    or struct.unpack('<I4', value, length - 3) ~= block.payload_base + payload_bytes then
    return nil
  end
  return block
end

local function is_block(value)
  return read_block(value) ~= nil
end
