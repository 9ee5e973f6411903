--- @include block_index, lease_blocks, lease_fields, ranges, read_slots
-- What a reap needs to know of a lease's fields.

-- The slots still held, as ranges; `blocks` are those of the lease.
local function held_slots(key, lease, blocks)
  if lease.held == lease.size then
    return lease.size == 1 and '1' or '1-' .. lease.size
  end
  local slots, held, names = {}, {}, single_slots(key, {})
  for i = 1, #names do
    held[names[i]] = true
  end
  for i = 1, #blocks do
    for slot = blocks[i].first, blocks[i].last do
      held[slot] = true
    end
  end
  for slot = 1, lease.size do
    if held[slot] then
      slots[#slots + 1] = slot
    end
  end
  return to_ranges(slots)
end

-- Read whatever a lease still holds: at most `limit` values, and no more once `max_bytes` are read. Also returns how
-- many more messages these are than slots, less than 0 for a block, which is read alone: one that is not listed.
local function read_leftovers(key, limit, max_bytes)
  local slots, entries, bytes, others, names = {}, {}, 0, 0, names_in(key)
  for i = 1, math.min(limit, #names) do
    if bytes < max_bytes then
      local value = redis.call('HGET', key, names[i])
      local opened = open_block(value)
      if opened and i == 1 then
        return {names[1]}, opened, 1 - #opened
      elseif opened then
        break
      end
      slots[i], entries[i] = names[i], value
      bytes, others = bytes + #value, others + (is_slot(names[i]) and 0 or 1)
    end
  end
  return slots, entries, others
end

-- Read what the next step of a reap moves, from the slot `from` on: single slots and whole blocks, at most `limit`
-- messages but one value at least, or what something else has written into a lease whose own slots are all requeued.
-- Returns slots, messages, what `read_leftovers` adds to them, and the names of the fields of the blocks.
local function read_expired(key, lease, blocks, from, limit, max_bytes)
  local last = #blocks > 0 and math.max(lease.size, blocks[#blocks].last) or lease.size
  local found, values, count = read_slots(key, from, last, limit, max_bytes, blocks)
  local slots, entries, names, find = {}, {}, {}, block_finder(blocks)
  for i = 1, #found do
    local block = find(found[i])
    if not block or block.first > found[i] then
      slots[#slots + 1], entries[#entries + 1] = found[i], values[i]
    elseif i == 1 or i < #found or count <= limit then
      local opened = open_block(values[i]) or {values[i]}
      for at = 1, block.last - block.first + 1 do
        slots[#slots + 1], entries[#entries + 1] = block.first + at - 1, opened[at]
      end
      names[#names + 1] = block.name
    end
  end
  if #found == 0 then
    return read_leftovers(key, limit, max_bytes)
  end
  return slots, entries, 0, names
end
