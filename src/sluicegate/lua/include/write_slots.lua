-- Write the slots of a new lease, and the name of its consumer, "" for none. `counts` has the number of messages of
-- those of the `values` that are blocks. Redis copies what one command writes: few blocks at a time use the same
-- memory.
local function write_slots(key, packed, values, counts, consumer)
  local fields, count, slot, blocks = {'m', packed}, 2, 1, {}
  if consumer ~= '' then
    fields[3], fields[4], count = 'by', consumer, 4
  end
  for i = 1, #values do
    local messages = counts[i]
    if messages then
      blocks[#blocks + 1] = slot .. ':' .. messages
    end
    -- `#fields` would search for its end each time.
    fields[count + 1], fields[count + 2], count = messages and 'b' .. slot or slot, values[i], count + 2
    slot = slot + (messages or 1)
    if count >= 2000 or messages and count >= 6 then
      redis.call('HSET', key, unpack(fields, 1, count))
      count = 0
    end
  end
  if #blocks > 0 then
    fields[count + 1], fields[count + 2], count = 'blocks', table.concat(blocks, ','), count + 2
  end
  if count > 0 then
    redis.call('HSET', key, unpack(fields, 1, count))
  end
end
