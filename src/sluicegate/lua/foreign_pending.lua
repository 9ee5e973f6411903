-- Show which entries of a group's stream consumers of other libraries hold, and which such consumers there are.
-- Guarantee: reads only, in bounded steps.
-- KEYS:
--   1 stream
-- ARGV:
--   1 group
--   2 after                the id that the previous answer ended with, "" for the first
--   3 count                maximum entries, 0 for none
--   4 consumer             only what this one holds; "" for every consumer
-- Returns: {{id, consumer, ms since its last delivery, deliveries}..., {{name, entries, ms since its last
--   call}...}}: the consumers come last
-- Repeat: reads again.

--- @include unread
read_group(stream, group)
local found, reply, consumers = {}, {}, {}
if tonumber(count) > 0 then
  local from = after == '' and '-' or '(' .. after
  if consumer == '' then
    found = redis.call('XPENDING', stream, group, from, '+', count)
  else
    found = redis.call('XPENDING', stream, group, from, '+', count, consumer)
  end
end
for i = 1, #found do
  reply[i] = found[i]
end
local all = redis.call('XINFO', 'CONSUMERS', stream, group)
for i = 1, #all do
  local fields = {}
  for at = 1, #all[i], 2 do
    fields[all[i][at]] = all[i][at + 1]
  end
  consumers[i] = {fields.name, fields.pending, fields.idle}
end
reply[#reply + 1] = consumers
return reply
