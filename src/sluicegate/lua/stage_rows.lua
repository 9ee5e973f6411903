-- Put messages aside, to be published by a later publish: what one attempt of a task hands to whoever ends the write.
-- Guarantee: each part joins the stage once and in order; nobody can claim it.
-- KEYS:
--   1 stage          the parts, the first one rightmost; another stage for each attempt
-- ARGV:
--   1 expected       parts that are in the stage already
--   2 life_ms        of the stage from now on, at least: the record of its write may keep it for longer
--   3... parts       per message: US key US headers US payload
-- Returns: parts in the stage; -1 when it does not hold those expected: it was dropped, or has run out
-- Repeat: finds its parts there. Refused for memory like a publish, since it needs as much.

local stage, expected, count = KEYS[1], tonumber(ARGV[1]), #ARGV - 2
local length = redis.call('LLEN', stage)
if length < expected then
  return -1
end
if length == expected then
  redis.call('LPUSH', stage, unpack(ARGV, 3))
end
if redis.call('PTTL', stage) < tonumber(ARGV[2]) then
  redis.call('PEXPIRE', stage, ARGV[2])
end
return math.max(length, expected + count)
