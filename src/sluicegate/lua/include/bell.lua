-- The bell holds at most one token. Its length is read before a script's first write, so that a key of the wrong type stops the script whole.
local function ring(bell, tokens)
  if tokens == 0 then
    redis.call('LPUSH', bell, '1')
  end
end
