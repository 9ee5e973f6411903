--- @include ranges, valid_ranges
-- The verdicts of a settle come in groups of five arguments, from `groups_at` on: verb, slots as ranges, delay_ms,
-- named, why.

-- The outcomes that a verb accepts on a slot that is already gone, and still counts as done.
local ACCEPTED_OUTCOMES = {
  ack = {acked = true}, discard = {acked = true}, bury = {buried = true},
  nack = {returned = true, buried = true}, release = {returned = true, buried = true},
}

-- Returns a function that gives the outcome of a slot of an ended or partly settled lease.
local function slot_outcomes(returned, buried, left)
  local in_returned, in_buried, in_left = slot_set(returned), slot_set(buried), slot_set(left)
  return function(slot)
    return in_left[slot] and 'left' or in_returned[slot] and 'returned' or in_buried[slot] and 'buried' or 'acked'
  end
end

-- Whether some verdict moves messages to other keys, which ack and discard do not.
local function moves_messages(argv, groups_at)
  for at = groups_at, #argv, 5 do
    if not ACCEPTED_OUTCOMES[argv[at]].acked then
      return true
    end
  end
  return false
end

local function requested_slots(argv, groups_at)
  local requested = {}
  for at = groups_at + 1, #argv, 5 do
    requested[#requested + 1] = argv[at]
  end
  return table.concat(requested, ',')
end

-- The record that a reap in progress will write.
local function fenced_record(key)
  local token, left, returned, buried = unpack(redis.call('HMGET', key, 'fenced', 'left', 'returned', 'buried'))
  return {token = token, left = valid_ranges(left), returned = valid_ranges(returned), buried = valid_ranges(buried)}
end

-- The slots of a repeated or late settle whose verdict did not take effect.
local function lost_slots(record, argv, groups_at)
  local outcome, lost = slot_outcomes(record.returned, record.buried, record.left), {}
  for at = groups_at, #argv, 5 do
    each_slot(argv[at + 1], function(slot)
      if not ACCEPTED_OUTCOMES[argv[at]][outcome(slot)] then
        lost[#lost + 1] = slot
      end
    end)
  end
  return table.concat(lost, ',')
end
