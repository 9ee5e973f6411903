-- Describe a stream and its groups.
-- Guarantee: reads only.
-- KEYS:
--   1 stream
--   2 counters
--   3 groups
-- ARGV:
-- Returns: {1 when the stream exists, length, id of the first entry, id of the last one, greatest id ever given,
--   entries ever added or -1, totals of published, duplicates, trimmed and trimmed_unfinished, a list per group}: name,
--   consumers, entries that consumers of other libraries hold, id delivered last, lag or -1, start or "", time until a
--   temporary group expires in ms or -1
-- Repeat: reads again.

--- @include clock, group_records, numbers
local totals = redis.call('HMGET', counters, 'published', 'duplicates', 'trimmed', 'trimmed_unfinished')
for i = 1, #totals do
  totals[i] = to_integer(totals[i])
end
local records, ms = read_group_records(groups), math.floor(clock_us() / 1000)
if redis.call('XLEN', stream) == 0 and redis.call('EXISTS', stream) == 0 then
  return {0, 0, '', '', '', -1, totals, {}}
end
local info, fields = redis.call('XINFO', 'STREAM', stream), {}
for at = 1, #info, 2 do
  fields[info[at]] = info[at + 1]
end
local all, rows = native_groups(stream), {}
for i = 1, #all do
  local group, record = all[i], records[all[i].name]
  local left = record and record.life_ms > 0 and math.max(0, record.expires_ms - ms) or -1
  rows[i] = {
    group.name, group.consumers, group.pending, group['last-delivered-id'], tonumber(group.lag or nil) or -1,
    record and record.start or '', left,
  }
end
local first, last = fields['first-entry'], fields['last-entry']
return {
  1, fields.length, first and first[1] or '', last and last[1] or '', fields['last-generated-id'],
  fields['entries-added'] or -1, totals, rows,
}
