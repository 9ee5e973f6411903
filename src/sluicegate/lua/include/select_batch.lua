-- Taking messages for a lease, without writing: first what came back, in smaller batches the more often it failed;
-- then, if nothing taken has failed before, what is pending. Bounded in messages and bytes. Of what came back, entries that `left_out`
-- names in a batch (nil: none) are passed by; after a thousand of them it stops.
local function batch_selector(limit, max_bytes, most, excluded_in)
  local self = {taken = {}, passed = {}, foreign = {}, bytes = 0, room = limit, untried = true, ranks = 0, scanned = 0}

  local function wanting()
    return #self.taken < self.room and self.bytes < max_bytes
  end

  local function take(value)
    if is_entry(value) then
      self.taken[#self.taken + 1] = value
    else
      self.foreign[#self.foreign + 1] = value
    end
    self.bytes = self.bytes + #value
  end

  -- The head decides whether this lease holds tried or untried messages; the two never mix.
  local function fits(value)
    local deliveries = is_entry(value) and deliveries_of(value) or 0
    if #self.taken == 0 then
      self.untried = deliveries == 0
    elseif self.untried ~= (deliveries == 0) then
      return false
    end
    if deliveries > 0 then
      local alone = most > 0 and deliveries >= most - 1
      self.room = math.min(self.room, alone and 1 or math.max(1, math.floor(limit / 4 ^ deliveries)))
    end
    return wanting()
  end

  function self.from_returned(returned)
    local chunk = 1
    while wanting() and #self.passed < 1000 do
      local batch = redis.call('ZRANGE', returned, self.ranks, self.ranks + chunk - 1)
      local left = excluded_in and excluded_in(batch) or {}
      for i = 1, #batch do
        if left[i] then
          self.passed[#self.passed + 1], self.bytes = batch[i], self.bytes + #batch[i]
        elseif fits(batch[i]) then
          take(batch[i])
        else
          self.room = #self.taken
          return
        end
        self.ranks = self.ranks + 1
      end
      if #batch < chunk then
        return
      end
      chunk = math.min(chunk * 4, 1000)
    end
  end

  function self.from_pending(pending)
    local chunk = 1
    while self.untried and wanting() and #self.passed < 1000 and self.scanned < limit + 1000 do
      local wanted = math.min(self.room - #self.taken, chunk)
      local batch = redis.call('LRANGE', pending, -(self.scanned + wanted), -(self.scanned + 1))
      -- As `take`, with what it changes in locals: most messages pass here.
      local taken, count, bytes, at = self.taken, #self.taken, self.bytes, #batch
      while at > 0 and bytes < max_bytes do
        local value = batch[at]
        if is_entry(value) then
          count = count + 1
          taken[count] = value
        else
          self.foreign[#self.foreign + 1] = value
        end
        at, bytes = at - 1, bytes + #value
      end
      self.bytes, self.scanned = bytes, self.scanned + #batch - at
      if #batch < wanted or at > 0 then
        return
      end
      chunk = math.min(chunk * 4, 1000)
    end
  end

  return self
end
