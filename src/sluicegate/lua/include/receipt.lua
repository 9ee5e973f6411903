-- The answer of the last step of an operation, kept under a key of its own: a repeat of that step is answered from it, and so is an earlier
-- step that is executed late.
local function answered(receipt, step)
  local kept = redis.call('GET', receipt)
  kept = kept and cjson.decode(kept)
  return kept and kept.step >= step and kept.reply
end

local function answer(receipt, step, life_ms, reply)
  redis.call('SET', receipt, cjson.encode({step = step, reply = reply}), 'PX', life_ms)
  return reply
end
