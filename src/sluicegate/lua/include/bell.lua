-- The bell holds a wake-up token, '1', and behind it a spare, '2', should whoever takes the first die before its claim. Its length is
-- read before a script's first write, so that a key of the wrong type stops the script whole.
local function ring(bell, tokens)
  if tokens == 0 then
    redis.call('RPUSH', bell, '1', '2')
  elseif tokens == 1 and redis.call('LINDEX', bell, 0) == '1' then
    redis.call('RPUSH', bell, '2')
  elseif tokens == 1 then
    redis.call('LPUSH', bell, '1')
  end
end
