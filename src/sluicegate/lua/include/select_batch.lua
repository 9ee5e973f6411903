--- @include entry, take_unread, unread
-- Select the messages of a new lease, without writing: first returned messages, in smaller batches the more often they
-- failed; then, if no selected message has failed before, pending ones. `excluded_in` says which entries of a batch of
-- returned ones are excluded; nil excludes none. The selection is bounded in messages and bytes, and ends after a
-- thousand excluded entries. Returns a table of the entries `taken`, the entries `excluded`, the values `foreign`, and
-- how many values to remove from `returned` (`ranks`) and from `pending` (`scanned`). Of a group, what is
-- `unread` is pending, with sequences behind `published`.
local function select_batch(returned, pending, limit, max_bytes, max_delivery_count, excluded_in, unread, published)
  -- One untried message is the most frequent claim, and needs none of the functions below.
  local head = limit == 1 and not unread and redis.call('EXISTS', returned) == 0 and redis.call('LINDEX', pending, -1)
  if head and is_entry(head) then
    return {taken = {head}, excluded = {}, foreign = {}, ranks = 0, scanned = 1}
  end
  local self = {taken = {}, excluded = {}, foreign = {}, ranks = 0, scanned = 0}
  local bytes, room, untried = 0, limit, true

  local function wants_more()
    return #self.taken < room and bytes < max_bytes
  end

  local function take(value)
    if is_entry(value) then
      self.taken[#self.taken + 1] = value
    else
      self.foreign[#self.foreign + 1] = value
    end
    bytes = bytes + #value
  end

  -- The first message decides whether this lease holds tried or untried messages; the two never mix.
  local function fits(value)
    local deliveries = is_entry(value) and deliveries_of(value) or 0
    if #self.taken == 0 then
      untried = deliveries == 0
    elseif untried ~= (deliveries == 0) then
      return false
    end
    if deliveries > 0 then
      local alone = max_delivery_count > 0 and deliveries >= max_delivery_count - 1
      room = math.min(room, alone and 1 or math.max(1, math.floor(limit / 4 ^ deliveries)))
    end
    return wants_more()
  end

  local function take_returned()
    local chunk = 1
    while wants_more() and #self.excluded < 1000 do
      local batch = redis.call('ZRANGE', returned, self.ranks, self.ranks + chunk - 1)
      local excluded = excluded_in and excluded_in(batch) or {}
      for i = 1, #batch do
        if excluded[i] then
          self.excluded[#self.excluded + 1], bytes = batch[i], bytes + #batch[i]
        elseif fits(batch[i]) then
          take(batch[i])
        else
          room = #self.taken
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

  local function take_pending()
    local chunk = 1
    while untried and wants_more() and #self.excluded < 1000 and self.scanned < limit + 1000 do
      local wanted = math.min(room - #self.taken, chunk)
      local batch = redis.call('LRANGE', pending, -(self.scanned + wanted), -(self.scanned + 1))
      -- This does what `take` does, with locals, because most messages pass here.
      local taken, count, size, at = self.taken, #self.taken, bytes, #batch
      while at > 0 and size < max_bytes do
        local value = batch[at]
        if is_entry(value) then
          count = count + 1
          taken[count] = value
        else
          self.foreign[#self.foreign + 1] = value
        end
        at, size = at - 1, size + #value
      end
      bytes, self.scanned = size, self.scanned + #batch - at
      if #batch < wanted or at > 0 then
        return
      end
      chunk = math.min(chunk * 4, 1000)
    end
  end

  take_returned()
  if not unread then
    take_pending()
  elseif untried and wants_more() and #self.excluded < 1000 then
    take_unread(self, returned, unread, published, room, max_bytes - bytes)
  end
  return self
end

-- Remove a selected batch from where it was read.
local function remove_batch(returned, pending, batch, unread, counters)
  if batch.ranks > 0 then
    redis.call('ZREMRANGEBYRANK', returned, 0, batch.ranks - 1)
  end
  if unread and batch.scanned > 0 then
    redis.call('HSET', counters, 'published', batch.sequence)
    advance_group(unread, batch.last, batch.scanned, batch.ended)
  elseif batch.scanned == 1 then
    redis.call('RPOP', pending)
  elseif batch.scanned > 1 then
    redis.call('LTRIM', pending, 0, -(batch.scanned + 1))
  end
end
