-- The answer of an operation's last step, kept under a key of its own. It answers a repeat of that step, and an earlier
-- step that is executed late.
local function stored_answer(receipt, step)
  local readable, kept = pcall(cjson.decode, redis.call('GET', receipt) or 'null')
  if readable and type(kept) == 'table' and type(kept.step) == 'number' and type(kept.reply) == 'table' then
    return kept.step >= step and kept.reply
  end
end

local function store_answer(receipt, step, life_ms, reply)
  redis.call('SET', receipt, cjson.encode({step = step, reply = reply}), 'PX', life_ms)
  return reply
end
