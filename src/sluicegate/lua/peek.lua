-- Show messages of one state, the next to be claimed first, or records of a history, the newest first.
-- Guarantee: reads only.
-- KEYS:
--   1 source         a list, or a zset of entries or of dead ids
--   2 dead_records   the dead records by id
-- ARGV:
--   1 kind           "list", "zset", "dead" or "history"
--   2 count          most messages
-- Returns: the stored values
-- Repeat: reads again.

local kind, count = ARGV[1], tonumber(ARGV[2])
if kind == 'list' then
  local values, reply = redis.call('LRANGE', KEYS[1], -count, -1), {}
  for i = #values, 1, -1 do
    reply[#reply + 1] = values[i]
  end
  return reply
end
if kind == 'history' then
  return redis.call('LRANGE', KEYS[1], 0, count - 1)
end
local members = redis.call('ZRANGE', KEYS[1], 0, count - 1)
if kind == 'zset' then
  return members
end
local reply = {}
for i = 1, #members do
  reply[i] = redis.call('HGET', KEYS[2], members[i]) or ''
end
return reply
