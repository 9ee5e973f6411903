-- The bell holds a wake-up token, '1', and behind it a spare, '2', should whoever takes the first die before its claim. Its length is
-- read before a script's first write, so that a key of the wrong type stops the script whole.
local function wake_consumer(wakeup, tokens)
  if tokens == 0 then
    redis.call('RPUSH', wakeup, '1', '2')
  elseif tokens == 1 and redis.call('LINDEX', wakeup, 0) == '1' then
    redis.call('RPUSH', wakeup, '2')
  elseif tokens == 1 then
    redis.call('LPUSH', wakeup, '1')
  end
end
