-- Deduplication markers are fields of hashes, a hash per generation and bucket. The chain lists the generations, oldest
-- first, each as "number:bits:span_ms:until_ms;": it has 2^bits buckets, takes markers that live for up to span_ms, and
-- none of them lives beyond until_ms. A client names the buckets in KEYS by the chain that it knows. Where that is not
-- the stored one, a script changes nothing and answers {'chain', the stored one}, and the client calls again.
-- `stored` is `markers` of the counters. Returns the chain, or nil and that answer. A queue that has lost its chain
-- takes that of the client.
local function chain_of(counters, stored, sent)
  if stored and stored ~= sent then
    return nil, {'chain', stored}
  end
  local self = {is_stored = stored}

  function self.read(text)
    local length = 0
    self.text, self.generations = text, {}
    for item, number, bits, span, over in string.gmatch(text, '((%d+):(%d+):(%d+):(%d+);)') do
      length = length + #item
      self.generations[#self.generations + 1] = {
        text = item, number = tonumber(number), bits = tonumber(bits), span = tonumber(span), over = tonumber(over),
      }
    end
    if length ~= #text or length > 4096 then
      self.generations = {} -- overwritten from outside
    end
  end

  -- The place of the newest generation for a marker that lives for `life` ms, nil for none. A marker of a short life
  -- stays out of a generation that is kept for long.
  function self.place(ms, life)
    for i = #self.generations, 1, -1 do
      local one = self.generations[i]
      if ms + life <= one.over and one.span <= 2 * life then
        return i
      end
    end
  end

  -- Add a generation for such markers, and drop those whose markers have all expired. `exact`: the life is that of all
  -- markers of a publisher; other lives are rounded up, so that they share generations.
  function self.add(ms, life, exact, bits)
    local number, left, span = 0, {}, exact and life or 1000
    while span < life do
      span = span * 2
    end
    for i = 1, #self.generations do
      local one = self.generations[i]
      number = math.max(number, one.number)
      left[#left + 1] = one.over > ms and one.text or nil
    end
    left[#left + 1] = string.format('%.0f:%d:%.0f:%.0f;', number + 1, bits, span, ms + 2 * span)
    self.text = table.concat(left)
  end

  function self.store()
    redis.call('HSET', counters, 'markers', self.text)
    return {'chain', self.text}
  end

  -- Make sure that there is a generation for such markers. Returns the answer that tells of a new one.
  function self.ensure(ms, life)
    if not self.place(ms, life) then
      self.add(ms, life, false, 0)
      return self.store()
    end
  end

  self.read(sent)
  return self
end
