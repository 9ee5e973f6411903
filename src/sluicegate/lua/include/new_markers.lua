--- @include marker_chain, markers
-- The markers of a publish: those that are held, and those that it writes; none where there are no keys. Returns nil
-- and an answer when the buckets are not those of the chain, or when it had to open a generation for their life.
-- A queue without a chain opens its first one in place.
local MAX_BUCKET_BYTES = 900000
-- Redis searches a small hash from end to end, for up to 2 us per field. A hash that held a value of more than 64 bytes
-- once has an index: a publish of many messages puts one into a new bucket and removes it.
local MANY = 100

local function new_markers(counters, stored, known_chain, plan, fields, keys, first, ms, life, window, count)
  if fields == '' then
    return {owners = {}, names = {}, write = function() end, told = function(reply) return reply end}
  end
  local chain, answer = chain_of(counters, stored, known_chain)
  if not chain then
    return nil, answer
  end
  local self, opens = markers_in(plan, fields, keys, first, ms, chain, count), chain.text == '' and not chain.is_stored
  local place = chain.place(ms, life)

  -- The bits of the newest generation for such markers; fewer when its bucket in sight is nearly empty. The first
  -- generation of all has those by which the client named its buckets.
  local function usual_bits()
    for i = #chain.generations, 1, -1 do
      local one = chain.generations[i]
      if life <= one.span and one.span <= 2 * life then
        local full = redis.call('HLEN', self.runs[i][1].key) * (100 + 2 * #self.names[1])
        return full * 32 < MAX_BUCKET_BYTES and math.max(0, one.bits - 4) or one.bits
      end
    end
    return opens and plan ~= '' and 4 or 0
  end

  if not place then
    chain.add(ms, life, life == window and #chain.generations < 16, usual_bits())
    if not opens then
      return nil, chain.store()
    end
    chain.read(chain.text)
    place = 1
  end

  -- Write a marker for each place in `ids`: its owner is what is there, between `before` and `after`. Where the bucket
  -- in sight, of a number that changes from call to call, is too full for another call, the next call finds a new
  -- generation with 16 times as many.
  function self.write(ids, before, after, number)
    if not chain.is_stored then
      chain.store()
    end
    local names, generation, run = self.names, chain.generations[place], self.runs[place]
    local value, over = string.format('%012x', ms + life) .. before, string.format('%.0f', generation.over)
    for i = 1, #run do
      local one, values, size = run[i], {}, 0
      for at = one.from, one.to do
        local id = ids[at]
        if id then
          values[size + 1], values[size + 2], size = names[at], value .. id .. after, size + 2
        end
      end
      local is_new = size > 0 and not run.exist and redis.call('EXISTS', one.key) == 0
      local spreads = is_new and self.count >= MANY
      if spreads then
        redis.call('HSET', one.key, ':', string.rep('0', 65))
      end
      for from = 1, size, 2000 do
        redis.call('HSET', one.key, unpack(values, from, math.min(from + 1999, size)))
      end
      if spreads then
        redis.call('HDEL', one.key, ':')
      end
      if is_new then
        redis.call('PEXPIREAT', one.key, over)
      end
    end
    if math.floor(number / 16) == math.floor((number + self.count) / 16) then
      return -- the rest need not be looked at by every publish of few messages
    end
    local one = run[number % #run + 1]
    if redis.call('PTTL', one.key) == -1 then
      redis.call('PEXPIREAT', one.key, over) -- a script was stopped after it had made the bucket
    end
    local soon = redis.call('HLEN', one.key) + one.to - one.from + 1
    if soon * (96 + #names[one.from] + #value + #after) > MAX_BUCKET_BYTES and generation.bits < 16 then
      chain.add(ms, generation.span, true, generation.bits + 4)
      chain.store()
    end
  end

  -- The answer to the client, with the chain if that has changed.
  function self.told(reply)
    return chain.text == known_chain and reply or {'chain', chain.text, reply}
  end

  return self
end
