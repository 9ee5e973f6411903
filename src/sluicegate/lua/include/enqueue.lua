-- When new messages fall due, false for now. A delay counts from `ms`, a millisecond that has begun already, so that no
-- message is due early.
local function due_time(ms, due_ms, delay_ms)
  if due_ms == 0 and delay_ms > 0 then
    due_ms = ms + 1 + delay_ms
  end
  return due_ms > ms and due_ms
end

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
