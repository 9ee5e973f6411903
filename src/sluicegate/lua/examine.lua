-- Look for what does not agree in a queue, and for stored values that are no messages.
-- Guarantee: reads only, in bounded steps; a key of another type is reported and not read.
-- KEYS:
--   1 pending              a list; of a group, its stream
--   2 returned
--   3 delayed
--   4 set_aside
--   5 leases
--   6 dead
--   7 dead_records
--   8 counters
--   9 wakeup
--   10 completed
--   11 failed
--   12... lease            the hashes of the leases in `names`
-- ARGV:
--   1 group                the name of the group of a stream, "" for a queue
--   2 sample               values to look at per state
--   3 recent_ms            dead letters that were buried since then are counted
--   4 max_leases           leases that the answer names
--   5... names             the members in `leases` of those hashes
-- Returns: {{length of each of the first eleven keys, -1 for another type}, {messages looked at, foreign values, bytes}
--   of pending, returned and delayed, {dead letters looked at, without a record, buried recently}, {totals that are no
--   numbers}, 1 when the sequence is behind, {expired leases, ms since the first expired}, {names of leases},
--   {messages in the named leases, gauge, leases that are damaged, miscounted, without a hash or a deadline}}
-- Repeat: reads again.

--- @include clock, entry, layout, look_into_lease, newest_sequence, numbers, packed
local LENGTHS = {
  {pending, group == '' and 'LLEN' or 'XLEN'}, {returned, 'ZCARD'}, {delayed, 'ZCARD'}, {set_aside, 'ZCARD'},
  {leases, 'ZCARD'}, {dead, 'ZCARD'}, {dead_records, 'HLEN'}, {counters, 'HLEN'}, {wakeup, 'LLEN'}, {completed, 'LLEN'},
  {failed, 'LLEN'},
}
local NO_TOTALS = {paused = true, recount = true, adopt_from = true, markers = true}
local ms, limit, lengths, length_of = math.floor(clock_us() / 1000), tonumber(sample), {}, {}
for i, asked in ipairs(LENGTHS) do
  local length = redis.pcall(asked[2], asked[1])
  if type(length) == 'table' and not string.find(length.err, 'WRONGTYPE', 1, true) then
    return length
  end
  lengths[i] = type(length) == 'number' and length or -1
  length_of[asked[1]] = lengths[i]
end

local function look(...)
  local looked, unknown, bytes = 0, 0, 0
  for _, values in ipairs({...}) do
    for _, value in ipairs(values) do
      looked, bytes = looked + messages_in(value), bytes + #value
      unknown = unknown + (is_entry(value) and 0 or messages_in(value) > 1 and 0 or 1)
    end
  end
  return {looked, unknown, bytes}
end

local function first_of(zset)
  return length_of[zset] > 0 and redis.call('ZRANGE', zset, 0, limit - 1) or {}
end
local function look_at_list()
  if group ~= '' or length_of[pending] <= 2 * limit then
    return look(group == '' and length_of[pending] > 0 and redis.call('LRANGE', pending, 0, -1) or {})
  end
  return look(redis.call('LRANGE', pending, -limit, -1), redis.call('LRANGE', pending, 0, limit - 1))
end

local function look_at_dead()
  local ids, lost = first_of(dead), 0
  for _, id in ipairs(length_of[dead_records] >= 0 and ids or {}) do
    lost = lost + 1 - redis.call('HEXISTS', dead_records, id)
  end
  return {#ids, lost, length_of[dead] > 0 and redis.call('ZCOUNT', dead, ms - tonumber(recent_ms), '+inf') or 0}
end

local function wrong_totals()
  local found, wrong = length_of[counters] > 0 and redis.call('HGETALL', counters) or {}, {}
  for i = 1, #found, 2 do
    if not NO_TOTALS[found[i]] and found[i + 1] ~= string.format('%.0f', to_integer(found[i + 1])) then
      wrong[#wrong + 1] = found[i]
    end
  end
  return wrong
end

local function total(name)
  return lengths[8] > 0 and to_integer(redis.call('HGET', counters, name)) or 0
end

local newer = newer_layout(total('layout'))
if newer then return newer end

local function count_leases()
  local all, damaged, wrong, no_hash, no_deadline = 0, 0, 0, 0, 0
  for i = lease_at, #KEYS do
    local deadline = redis.call('ZSCORE', leases, ARGV[names_at + i - lease_at])
    local held, is_damaged, is_wrong = look_into_lease(KEYS[i])
    all, damaged = all + (held or 0), damaged + (held and is_damaged and 1 or 0)
    wrong, no_hash = wrong + (held and is_wrong and 1 or 0), no_hash + (deadline and not held and 1 or 0)
    no_deadline = no_deadline + (held and not deadline and 1 or 0)
  end
  return {all, total('in_flight'), damaged, wrong, no_hash, no_deadline}
end

local behind = math.min(lengths[1], lengths[2], lengths[8]) >= 0
  and newest_sequence(group == '' and pending, returned) > total('published') and 1 or 0
local expired = lengths[5] > 0 and redis.call('ZCOUNT', leases, '-inf', ms) or 0
return {
  lengths, {look_at_list(), look(first_of(returned)), look(first_of(delayed))}, look_at_dead(), wrong_totals(), behind,
  {expired, expired > 0 and ms - math.max(0, tonumber(redis.call('ZRANGE', leases, 0, 0, 'WITHSCORES')[2])) or 0},
  lengths[5] > 0 and redis.call('ZRANGE', leases, 0, max_leases - 1) or {}, lengths[5] < 0 and {} or count_leases(),
}
