-- Which verdict each verb may find on a slot that is already gone, and still count as done.
local AGREES = {
  ack = {acked = true}, bury = {buried = true},
  nack = {returned = true, buried = true}, release = {returned = true, buried = true},
}

-- What became of a slot of an ended or partly settled lease.
local function fates(returned, buried, left)
  local in_returned, in_buried, in_left = slot_set(returned), slot_set(buried), slot_set(left)
  return function(slot)
    return in_left[slot] and 'left' or in_returned[slot] and 'returned' or in_buried[slot] and 'buried' or 'acked'
  end
end

local function asked_slots(argv)
  local asked = {}
  for at = 8, #argv, 5 do
    asked[#asked + 1] = argv[at]
  end
  return table.concat(asked, ',')
end

-- The record that a reap in progress will write.
local function fenced_record(key)
  local token, left, returned, buried = unpack(redis.call('HMGET', key, 'fenced', 'left', 'returned', 'buried'))
  return {token = token, left = left or '', returned = returned or '', buried = buried or ''}
end

-- The slots of a repeated or late settle whose verdict did not take effect.
local function lost_after(record, argv)
  local fate, lost = fates(record.returned, record.buried, record.left), {}
  for at = 7, #argv, 5 do
    each_slot(argv[at + 1], function(slot)
      if not AGREES[argv[at]][fate(slot)] then
        lost[#lost + 1] = slot
      end
    end)
  end
  return table.concat(lost, ',')
end

-- The verdicts of one settle on an open lease. `lease.held` and `lease.acked` follow.
local function verdicts_of(key, lease)
  local gone = redis.call('HMGET', key, 'returned', 'buried')
  local self = {returned = gone[1] or '', buried = gone[2] or ''}
  local counts = {acked = 0, nacked = 0, released = 0, buried = 0}

  local function note_gone(verb, slots, lost)
    local fate = fates(self.returned, self.buried, '')
    for i = 1, #slots do
      if not AGREES[verb][fate(slots[i])] then
        lost[#lost + 1] = slots[i]
      end
    end
  end

  function self.ack(ranges, lost)
    local asked, dropped = count_slots(ranges), nil
    if asked == lease.size and lease.held == lease.size then
      dropped = asked -- the whole lease: its hash is unlinked at once
    else
      local slots = {}
      each_slot(ranges, function(slot) slots[#slots + 1] = slot end)
      if self.returned ~= '' or self.buried ~= '' then
        note_gone('ack', slots, lost)
      end
      dropped = drop_slots(key, slots)
    end
    lease.held, lease.acked, counts.acked = lease.held - dropped, lease.acked + dropped, counts.acked + dropped
  end

  -- One slot leaves unacked: to the dead, out of reach for a while, or back among the claimable.
  local function put_back(verb, entry, to)
    local deadly = verb == 'bury'
    if deadly then
      entry = restamped(entry, deliveries_of(entry) + lease.takeovers + 1, releases_of(entry))
    else
      entry, deadly = come_back(entry, verb == 'nack', lease, to.most, to.named)
    end
    if deadly then
      bury(to.dead, to.records, to.ms, entry, id_of(entry), verb == 'bury' and to.why or ('max_delivery_count' .. to.why))
    elseif to.delay > 0 then
      redis.call('ZADD', to.delayed, to.ms + to.delay, entry)
    else
      redis.call('ZADD', to.returned, sequence_of(entry), entry)
    end
    return deadly
  end

  function self.take_back(verb, ranges, lost, to)
    local back, buried, missing = {}, {}, {}
    for first, last in string.gmatch(ranges, '(%d+)%-?(%d*)') do
      first, last = tonumber(first), tonumber(last) or tonumber(first)
      local slots, entries = read_slots(key, first, last, last - first + 1, math.huge)
      local at = 1
      for slot = first, last do
        if slots[at] == slot then
          local where = put_back(verb, entries[at], to) and buried or back
          where[#where + 1] = slot
          at = at + 1
        else
          missing[#missing + 1] = slot
        end
      end
    end
    note_gone(verb, missing, lost)
    drop_slots(key, back)
    drop_slots(key, buried)
    self.returned, self.buried = joined(self.returned, to_ranges(back)), joined(self.buried, to_ranges(buried))
    lease.held = lease.held - #back - #buried
    local counter = verb == 'release' and 'released' or 'nacked'
    counts[counter], counts.buried = counts[counter] + #back, counts.buried + #buried
    return #back
  end

  function self.count(counters)
    local gone = 0
    for name, count in pairs(counts) do
      if count > 0 then
        redis.call('HINCRBY', counters, name, count)
        gone = gone + count
      end
    end
    if gone > 0 then
      redis.call('HINCRBY', counters, 'in_flight', -gone)
    end
  end

  function self.keep()
    redis.call('HSET', key, 'm', pack_lease(lease), 'returned', self.returned, 'buried', self.buried)
  end

  return self
end
