-- Puts fresh entries at the end of the line, or, with a due time, where they wait for it: in their order among those of one due time.
local function enqueue(pending, delayed, entries, due)
  for first = 1, #entries, 1000 do
    local last = math.min(first + 999, #entries)
    if due then
      local scored = {}
      for i = first, last do
        scored[#scored + 1] = due
        scored[#scored + 1] = entries[i]
      end
      redis.call('ZADD', delayed, unpack(scored))
    else
      redis.call('LPUSH', pending, unpack(entries, first, last))
    end
  end
end
