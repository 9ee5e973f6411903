-- The verdicts of one settle on an open lease. `lease.held` and `lease.acked` follow. `markers`, `completed` and `failed` are nil
-- where there is nothing to free or to record, and then an ack reads no message.
local function verdicts_of(key, lease, ms, markers, completed, failed)
  local gone = lease.held < lease.size and redis.call('HMGET', key, 'returned', 'buried') or {}
  local self = {returned = gone[1] or '', buried = gone[2] or '', dead = 0}
  local counts = {acked = 0, discarded = 0, nacked = 0, released = 0, buried = 0}
  local back, buried = {}, {} -- slots that this settle took back, not in `self.returned` and `self.buried` yet: it may have a verdict per message

  local function append(list, slots)
    for i = 1, #slots do
      list[#list + 1] = slots[i]
    end
  end

  local function write_down()
    table.sort(back)
    table.sort(buried)
    self.returned, self.buried = joined(self.returned, to_ranges(back)), joined(self.buried, to_ranges(buried))
    back, buried = {}, {}
  end

  local function note_gone(verb, slots, lost)
    if #slots == 0 then
      return
    end
    write_down()
    local fate = fates(self.returned, self.buried, '')
    for i = 1, #slots do
      if not AGREES[verb][fate(slots[i])] then
        lost[#lost + 1] = slots[i]
      end
    end
  end

  -- "ms US error type US error text US verb US entry"
  local function record_failure(verb, why, entry)
    failed.add(string.format('%.0f', ms) .. string.match(why, '\31.*$') .. '\31' .. verb .. '\31' .. entry)
  end

  -- What goes on record, and whose markers are freed, before slots are dropped for good.
  local function say_farewell(verb, slots, why)
    local kept = verb == 'ack' and completed or verb == 'discard' and failed
    local beyond = kept and kept.cap > 0 and not markers and #slots - kept.cap or 0 -- their records would be trimmed at once
    local held, entries = read_held(key, slots, math.max(1, beyond + 1))
    for i = 1, #held do
      if markers then
        markers.free(held[i], entries[i])
      end
      if kept and verb == 'ack' then
        kept.add(string.format('%.0f', ms) .. '\31' .. ended(entries[i], lease.takeovers))
      elseif kept then
        record_failure(verb, why, ended(entries[i], lease.takeovers))
      end
    end
    if kept then
      kept.write()
    end
    if markers then
      markers.write()
    end
  end

  -- ack and discard
  function self.finish(verb, ranges, lost, why)
    local asked, dropped, slots = count_slots(ranges), nil, {}
    local whole = asked == lease.size and lease.held == lease.size
    local noted = markers or verb == 'ack' and completed or verb == 'discard' and failed
    if not whole or noted then
      each_slot(ranges, function(slot) slots[#slots + 1] = slot end)
    end
    if noted then
      say_farewell(verb, slots, why)
    end
    if whole then
      dropped = asked -- the whole lease: its hash is unlinked at once
    else
      if #back + #buried > 0 or self.returned ~= '' or self.buried ~= '' then
        note_gone(verb, slots, lost)
      end
      dropped = drop_slots(key, slots)
    end
    lease.held, lease.acked = lease.held - dropped, lease.acked + dropped
    local counter = verb == 'ack' and 'acked' or 'discarded'
    counts[counter] = counts[counter] + dropped
  end

  -- One slot leaves unacked: to the dead, out of reach for a while, or back among the claimable.
  local function put_back(verb, slot, entry, to)
    local deadly = verb == 'bury'
    if deadly then
      entry = ended(entry, lease.takeovers)
    else
      entry, deadly = come_back(entry, verb == 'nack', lease, to.most, to.named)
    end
    if failed and verb ~= 'release' then
      record_failure(verb, to.why, entry)
    end
    if deadly then
      bury(to.dead, to.records, ms, entry, id_of(entry), verb == 'bury' and to.why or ('max_delivery_count' .. to.why))
      if markers then
        markers.free(slot, entry)
      end
    elseif to.delay > 0 then
      redis.call('ZADD', to.delayed, ms + to.delay, entry)
      if markers then
        markers.prolong(slot, entry, to.delay)
      end
    else
      redis.call('ZADD', to.returned, sequence_of(entry), entry)
    end
    return deadly
  end

  function self.take_back(verb, ranges, lost, to)
    local left, dead, missing = {}, {}, {}
    for first, last in string.gmatch(ranges, '(%d+)%-?(%d*)') do
      first, last = tonumber(first), tonumber(last) or tonumber(first)
      local slots, entries = read_slots(key, first, last, last - first + 1, math.huge)
      local at = 1
      for slot = first, last do
        if slots[at] == slot then
          local where = put_back(verb, slot, entries[at], to) and dead or left
          where[#where + 1] = slot
          at = at + 1
        else
          missing[#missing + 1] = slot
        end
      end
    end
    note_gone(verb, missing, lost)
    if failed then
      failed.write()
    end
    if markers then
      markers.write()
    end
    drop_slots(key, left)
    drop_slots(key, dead)
    append(back, left)
    append(buried, dead)
    lease.held, self.dead = lease.held - #left - #dead, self.dead + #dead
    local counter = verb == 'release' and 'released' or 'nacked'
    counts[counter], counts.buried = counts[counter] + #left, counts.buried + #dead
    return #left
  end

  function self.count(counters)
    local gone = 0
    write_down()
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
