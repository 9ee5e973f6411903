--- @include block_index, count_up, drop_slots, lease, lease_blocks, ranges, recount, valid_ranges
-- Blocks in a settle. One ack or discard of all messages of a block takes it as it is; every other verdict needs its
-- messages as single slots.
local MOST_OPENED, MOST_OPENED_BYTES = 1000, 524288 -- of one call, which takes up to 5 ms for them
local MOST_BYTES_BESIDE = 262144 -- opened by a call that applies its verdicts as well

-- Whether the verdict that starts at ARGV `at` takes blocks as they are.
local function takes_blocks(argv, at)
  return argv[at] == 'ack' or argv[at] == 'discard'
end

-- The blocks that must be opened for these verdicts, as a set.
local function blocks_to_open(blocks, argv, groups_at)
  local touched, find = {}, block_finder(blocks)
  for at = groups_at, #argv, 5 do
    for first, last in string.gmatch(argv[at + 1], '(%d+)%-?(%d*)') do
      first, last = tonumber(first), tonumber(last) or tonumber(first)
      local _, i = find(first)
      while blocks[i] and blocks[i].first <= last do
        if not takes_blocks(argv, at) or first > blocks[i].first or last < blocks[i].last then
          touched[blocks[i]] = true
        end
        i = i + 1
      end
    end
  end
  return touched
end

-- Replace a block by its messages; returns how many. A damaged block becomes a foreign value in its first slot, and its
-- other slots count as buried.
local function open_one(key, lease, block, value, gone)
  local entries, fields = open_block(value) or {value}, {}
  for at = 1, #entries do
    fields[2 * at - 1], fields[2 * at] = block.first + at - 1, entries[at]
  end
  redis.call('HSET', key, unpack(fields))
  if block.first + #entries <= block.last then
    local buried = block.first + 1 .. '-' .. block.last
    lease.held, gone = lease.held - block.last + block.first, gone + block.last - block.first
    redis.call('HSET', key, 'buried', joined(valid_ranges(redis.call('HGET', key, 'buried')), buried),
      'm', pack_lease(lease))
  end
  redis.call('HDEL', key, block.name)
  return #entries, gone
end

-- Open the blocks of a lease that these verdicts cannot take as they are. Returns the other blocks; nil when that was
-- enough work for one call. Then the same call is made again.
local function open_blocks(key, lease, argv, groups_at, counters, recount, name)
  local blocks = blocks_of(key, lease)
  local touched, left, listed, opened, bytes, gone = blocks_to_open(blocks, argv, groups_at), {}, {}, 0, 0, 0
  local more = false
  for i = 1, #blocks do
    local block = blocks[i]
    if touched[block] and opened < MOST_OPENED and bytes < MOST_OPENED_BYTES then
      local value, count = redis.call('HGET', key, block.name), nil
      count, gone = open_one(key, lease, block, value, gone)
      opened, bytes = opened + count, bytes + #value
    else
      more = more or touched[block]
      left[#left + 1], listed[#listed + 1] = block, block.first .. ':' .. block.last - block.first + 1
    end
  end
  if #left < #blocks then
    redis.call('HSET', key, 'blocks', table.concat(listed, ','))
  end
  if gone > 0 then
    count_up(counters, 'in_flight', -gone)
    adjust_recount(counters, recount, name, lease.token, -gone)
  end
  return not more and bytes <= MOST_BYTES_BESIDE and left or nil
end

-- The slots of a block as names of fields.
local function fields_of(block)
  local fields = {}
  for slot = block.first, block.last do
    fields[#fields + 1] = slot
  end
  return fields
end

-- Read the messages of the slots from place `from` to `upto`, also from `blocks`, if all their slots are among `slots`.
local function read_settled(key, slots, from, upto, blocks)
  local found, find, now, entries = redis.call('HMGET', key, unpack(slots, from, upto)), block_finder(blocks), nil, nil
  for i = from, #blocks > 0 and upto or 0 do
    local block = find(slots[i])
    if block and block.first <= slots[i] then
      entries = now == block and entries or open_block(redis.call('HGET', key, block.name)) or {}
      now, found[i - from + 1] = block, entries[slots[i] - block.first + 1]
    end
  end
  return found
end

-- Remove slots from a lease, with the blocks that they cover; returns how many it held.
local function drop_settled(key, slots, blocks)
  local singles, dropped, find = {}, 0, block_finder(blocks)
  for i = 1, #slots do
    local block = #blocks > 0 and find(slots[i])
    if not block or block.first > slots[i] then
      singles[#singles + 1] = slots[i]
    elseif block.first == slots[i] and redis.call('HDEL', key, block.name, unpack(fields_of(block))) > 0 then
      dropped = dropped + block.last - block.first + 1
    end
  end
  return dropped + drop_slots(key, singles)
end
