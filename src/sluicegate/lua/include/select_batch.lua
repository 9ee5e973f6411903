--- @include entry, take_block, take_unread
-- Select the messages of a new lease, without writing: first returned messages, in smaller batches the more often they
-- failed; then, if no selected message has failed before, pending ones. `excluded_in` says which entries of a batch of
-- returned ones are excluded; nil excludes none. The selection is bounded in messages and bytes, and ends after a
-- thousand excluded entries. Returns a table of the values `taken`, with `counts` of those that are blocks, their
-- `size` in messages, the entries `excluded`, the values `foreign`, and how many values to remove from `returned`
-- (`ranks`) and from `pending` (`scanned`), with what take_block.lua adds. Of a group, what is `unread` is pending,
-- with sequences behind `published`. `packed` is nil while no block can be pending.
local function select_batch(returned, pending, limit, max_bytes, max_delivery_count, excluded_in, unread, published,
  packed)
  -- One untried message is the most frequent claim, and needs none of the functions below.
  local head = limit == 1 and not unread and redis.call('EXISTS', returned) == 0 and redis.call('LINDEX', pending, -1)
  if head and is_entry(head) then
    return {taken = {head}, counts = {}, size = 1, excluded = {}, foreign = {}, ranks = 0, scanned = 1}
  end
  local self = {taken = {}, counts = {}, size = 0, excluded = {}, foreign = {}, ranks = 0, scanned = 0}
  local bytes, room, untried = 0, limit, true

  local function wants_more()
    return self.size < room and bytes < max_bytes
  end

  local function take(value)
    if is_entry(value) then
      self.size = self.size + 1
      self.taken[self.size] = value
    else
      self.foreign[#self.foreign + 1] = value
    end
    bytes = bytes + #value
  end

  -- The first message decides whether this lease holds tried or untried messages; the two never mix.
  local function fits(value)
    local deliveries = is_entry(value) and deliveries_of(value) or 0
    if self.size == 0 then
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
          room = self.size
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
    local chunk, taken, before = 1, self.taken, bytes
    while untried and wants_more() and #self.excluded < 1000 and self.scanned < limit + 1000 do
      local wanted = math.min(room - self.size, chunk)
      local batch = redis.call('LRANGE', pending, -(self.scanned + wanted), -(self.scanned + 1))
      -- This does what `take` does, with locals, because most messages pass here.
      local count, number, size, at = #taken, self.size, bytes, #batch
      while at > 0 and size < max_bytes and number < room do
        local value, messages = batch[at], 1
        if is_entry(value) then
          count = count + 1
          taken[count] = value
        else
          messages = take_block(self, value, room - number, number == 0 and self.scanned == 0 and at == #batch)
          count = #taken
        end
        number, size = number + messages, size + #value
        if self.rest then
          break
        end
        at = at - 1
      end
      bytes, self.size, self.scanned = size, number, self.scanned + #batch - at
      if #batch < wanted or at > 0 then
        return
      end
      -- Values may be of very different sizes: the next chunk grows slowly, and little more is read than is taken.
      local fitting = math.ceil(math.min((room - number) / math.max(1, number), (max_bytes - size) / (size - before))
        * self.scanned)
      chunk = math.max(1, math.min(chunk * 4, packed and 4 or 1000, fitting))
    end
  end

  take_returned()
  if not unread then
    take_pending()
  elseif untried and wants_more() and #self.excluded < 1000 then
    take_unread(self, returned, unread, published, room, max_bytes - bytes)
    self.size = #self.taken
  end
  return self
end
