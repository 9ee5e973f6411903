-- Add new entries to the tail of `pending`, or, with a due time, to `delayed`, where entries of one due time keep their
-- order.
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
