-- Stage messages to be published by a later publish: one attempt of a task hands them to the commit of its write.
-- Guarantee: each part joins the stage once and in order; no consumer can claim it.
-- KEYS:
--   1 stage                the parts, the first one rightmost; each attempt has a stage of its own
-- ARGV:
--   1 expected             parts that are in the stage already
--   2 life_ms              minimum lifetime of the stage from now on; the record of its write may keep it for longer
--   3... parts             per message: US key US headers US payload
-- Returns: parts in the stage; -1 when it does not hold those expected, because it was dropped or expired
-- Repeat: finds its parts there. Refused for memory like a publish, because it needs as much.

local before, count = tonumber(expected), #ARGV - parts_at + 1
local length = redis.call('LLEN', stage)
if length < before then
  return -1
end
if length == before then
  redis.call('LPUSH', stage, unpack(ARGV, parts_at))
end
if redis.call('PTTL', stage) < tonumber(life_ms) then
  redis.call('PEXPIRE', stage, life_ms)
end
return math.max(length, before + count)
