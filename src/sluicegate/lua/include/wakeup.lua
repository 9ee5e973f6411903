-- The wake-up list holds the token '1', which wakes one waiting consumer, and behind it a spare '2' in case that
-- consumer dies before it claims. A script reads the length of the list before its first write, so that a key of the
-- wrong type stops the script unchanged.
local function wake_consumer(wakeup, tokens)
  if tokens == 0 then
    redis.call('RPUSH', wakeup, '1', '2')
  elseif tokens == 1 and redis.call('LINDEX', wakeup, 0) == '1' then
    redis.call('RPUSH', wakeup, '2')
  elseif tokens == 1 then
    redis.call('LPUSH', wakeup, '1')
  end
end
