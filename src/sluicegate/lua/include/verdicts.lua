--- @include completed_records, count_up, dead, drop_slots, end_of_job, entry, entry_counts, entry_sequence
--- @include foreign_values, lease, ranges, requeue_entry, settled_blocks, slot_outcomes, valid_ranges
-- Apply the verdicts of one settle to an open lease with `blocks`. `lease.held` and `lease.acked` follow. `markers`,
-- `tally`, `completed` and `failed` are nil where there is nothing to free or to record; then an ack reads no message.
-- The cost is linear in slots and groups, however they are mixed: earlier outcomes are read once, and only if some
-- verdict does not find its message.
local function verdicts_of(key, lease, blocks, ms, markers, tally, completed, failed)
  local earlier = lease.held < lease.size and redis.call('HMGET', key, 'returned', 'buried') or {}
  local self = {returned = valid_ranges(earlier[1]), buried = valid_ranges(earlier[2]), dead = 0, aside = 0}
  local counts = {acked = 0, discarded = 0, nacked = 0, released = 0, buried = 0}
  -- `outcomes`: slot -> "returned" or "buried", of this settle and, once `known`, of earlier ones.
  local back, buried, outcomes, known = {}, {}, {}, false
  local failures = 0 -- attempts that failed, whatever became of their messages
  local stamp, gone = string.format('%.0f', ms) .. '\31', 0
  local completed_record = completed_records(stamp, lease.takeovers)

  local function outcome(slot)
    if not known then
      each_slot(self.returned, function(one) outcomes[one] = 'returned' end)
      each_slot(self.buried, function(one) outcomes[one] = 'buried' end)
      known = true
    end
    return outcomes[slot] or 'acked'
  end

  local function add_lost(verb, slots, lost)
    for i = 1, #slots do
      if not ACCEPTED_OUTCOMES[verb][outcome(slots[i])] then
        lost[#lost + 1] = slots[i]
      end
    end
  end

  -- Record "ms US error type US error text US verb US entry".
  local function record_failure(verb, why, entry)
    failed.add(stamp .. string.match(why, '\31(.*)$') .. '\31' .. verb .. '\31' .. entry)
  end

  -- Record messages and free their markers before their slots are dropped for good.
  local function record_and_free(verb, slots, why)
    local kept = verb == 'ack' and completed or verb == 'discard' and failed
    local to, detail = verb == 'ack' and 'done' or 'gone', end_of_job(verb, why)
    -- Records beyond the cap would be trimmed at once.
    local beyond = kept and kept.cap > 0 and not markers and not tally and #slots - kept.cap or 0
    for first = math.max(1, beyond + 1), #slots, 1000 do
      local found = read_settled(key, slots, first, math.min(first + 999, #slots), blocks)
      for i = 1, #found do
        local entry = found[i]
        entry = entry and is_entry(entry) and entry -- the slot may have been overwritten from outside
        if entry and markers then
          markers.free(slots[first + i - 1], entry)
        end
        if entry and tally then
          tally.moved(entry, 'in_flight', to, detail)
        end
        if entry and kept and verb == 'ack' then
          kept.add(completed_record(entry))
        elseif entry and kept then
          record_failure(verb, why, ended(entry, lease.takeovers))
        end
      end
      if kept then
        kept.write()
      end
      if markers then
        markers.write()
      end
    end
  end

  -- Apply an ack or a discard.
  function self.finish(verb, ranges, lost, why)
    local asked, dropped, slots = count_slots(ranges), nil, nil
    local whole = asked == lease.size and lease.held == lease.size
    local noted = markers or tally or verb == 'ack' and completed or verb == 'discard' and failed
    if not whole or noted then
      slots = slots_of(ranges)
    end
    if noted then
      record_and_free(verb, slots, why)
    end
    if whole then
      dropped, self.whole = asked, true -- its hash is unlinked at once
    else
      dropped = drop_settled(key, slots, blocks)
      if dropped < #slots then
        add_lost(verb, slots, lost)
      end
    end
    gone, lease.held, lease.acked = gone + dropped, lease.held - dropped, lease.acked + dropped
    local counter = verb == 'ack' and 'acked' or 'discarded'
    counts[counter] = counts[counter] + dropped
    failures = failures + (verb == 'discard' and dropped or 0)
  end

  -- Move one message out of the lease: bury it, or add it to `scored` to be delayed or requeued. Returns whether it was
  -- buried.
  local function put_back(verb, slot, entry, to, scored)
    if not is_entry(entry) then
      self.aside = self.aside + store_foreign(to, ms, entry)
      return true -- overwritten from outside, or in a lease that a newer version opened
    end
    local deadly = verb == 'bury'
    if deadly then
      entry = ended(entry, lease.takeovers)
    else
      entry, deadly = requeue_entry(entry, verb == 'nack', lease, to.max_delivery_count, to.named)
    end
    if failed and verb ~= 'release' then
      record_failure(verb, to.why, entry)
    end
    if deadly then
      local how = verb == 'nack' and 'nacked without an error' or 'released more than 3 times'
      local why = verb == 'bury' and to.why or delivery_count_reason(entry, lease, to.max_delivery_count, to.why, how)
      bury(to.dead, to.records, ms, entry, id_of(entry), why)
      if markers then
        markers.free(slot, entry)
      end
      if tally then
        tally.moved(entry, 'in_flight', 'dead', {why = why})
      end
      return true
    end
    if tally then
      tally.moved(entry, 'in_flight', to.delay > 0 and 'delayed' or 'waiting', to)
    end
    scored[#scored + 1] = to.delay > 0 and ms + to.delay or sequence_of(entry)
    scored[#scored + 1] = entry
    if to.delay > 0 and markers then
      markers.prolong(slot, entry, to.delay)
    end
    return false
  end

  -- Take back the slots from `first` to `last`, at most as many as one command carries. Returns how many were not
  -- buried.
  local function take_back_some(verb, slots, first, last, lost, to)
    local found, left, dead, missing, scored = redis.call('HMGET', key, unpack(slots, first, last)), {}, {}, {}, {}
    local aside = self.aside
    for i = 1, #found do
      local slot = slots[first + i - 1]
      if not found[i] or outcomes[slot] then
        missing[#missing + 1] = slot
      elseif put_back(verb, slot, found[i], to, scored) then
        dead[#dead + 1], buried[#buried + 1], outcomes[slot] = slot, slot, 'buried'
      else
        left[#left + 1], back[#back + 1], outcomes[slot] = slot, slot, 'returned'
      end
    end
    add_lost(verb, missing, lost)
    if #scored > 0 then
      redis.call('ZADD', to.delay > 0 and to.delayed or to.returned, unpack(scored))
    end
    if failed then
      failed.write()
    end
    if markers then
      markers.write()
    end
    drop_slots(key, left)
    drop_slots(key, dead)
    gone, lease.held, self.dead = gone + #left + #dead, lease.held - #left - #dead, self.dead + #dead
    counts.buried = counts.buried + #dead - (self.aside - aside)
    return #left
  end

  -- Apply a nack, a release or a bury.
  function self.take_back(verb, ranges, lost, to)
    local slots, count, before = slots_of(ranges), 0, lease.held
    for first = 1, #slots, 1000 do
      count = count + take_back_some(verb, slots, first, math.min(first + 999, #slots), lost, to)
    end
    local counter = verb == 'release' and 'released' or 'nacked'
    counts[counter] = counts[counter] + count
    failures = failures + (verb == 'release' and 0 or before - lease.held)
    return count
  end

  -- Call this once, after the last verdict. Returns how many messages left the lease.
  function self.count(counters)
    for name, count in pairs(counts) do
      if count > 0 then
        count_up(counters, name, count)
      end
    end
    if gone > 0 then
      count_up(counters, 'in_flight', -gone)
    end
    if failures > 0 then
      count_up(counters, 'failed', failures)
    end
    table.sort(back)
    table.sort(buried)
    self.returned, self.buried = joined(self.returned, to_ranges(back)), joined(self.buried, to_ranges(buried))
    return gone
  end

  -- Keep the lease, whose other slots are still held.
  function self.keep()
    redis.call('HSET', key, 'm', pack_lease(lease))
    if #back > 0 then
      redis.call('HSET', key, 'returned', self.returned)
    end
    if #buried > 0 then
      redis.call('HSET', key, 'buried', self.buried)
    end
  end

  return self
end
