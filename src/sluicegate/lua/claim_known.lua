-- Answer a claim whose lease is open under its nonce, or take that lease over.
-- Guarantee: a takeover changes the nonce by compare-and-set on the token, keeps the opening and counts as a delivery.
-- KEYS:
--   1 lease
--   2 leases
--   3 counters
--   4 dead
--   5 dead_records
--   6 set_aside          messages of kinds that only a newer version knows
--   7 tracking           the records of batches and jobs
--   8 tracking_ended     those that ended, by the time when they are removed
--   9 tracking_news      the latest that ended
-- ARGV:
--   1 name               the lease's member in `leases`
--   2 nonce              of this claim
--   3 lease_ms           lifetime of the lease without a heartbeat
--   4 takeover           token of the open lease to take over, or anything else
--   5 max_lease_ms       maximum lifetime of a lease since its opening or last takeover, 0 for none
--   6 max_dead_length    dead messages kept, 0 for all
--   7 consumer           who takes the lease over, as the lease shows it; "" for no name
-- Returns: {"open", opening, takeovers, slots, entries, buried, dropped, aside}; {"maintain", 0, buried, dropped,
--   aside} when the lease held foreign values only, and has ended; {"reaping"} when the lease has reached its maximum
--   lifetime, and must be reaped first; {"changed"} when the lease is neither open under this nonce nor under the token
--   to take over: claim.lua answers. `buried` counts foreign values, `dropped` dead messages dropped for the cap,
--   `aside` messages of newer kinds
-- Repeat: finds the lease open under its nonce, and answers with the same lease and a new deadline.

--- @include clock, count_up, dead, drop_slots, entry, foreign_values, layout, lease, lease_blocks, oom_guard
--- @include read_slots, recount, sound_block, tracking
oom_guard(leases)
local recount, layout = unpack(redis.call('HMGET', counters, 'recount', 'layout'))
local newer = newer_layout(layout)
if newer then return newer end
local known, span, max_lease = read_lease(lease), tonumber(lease_ms), tonumber(max_lease_ms)
local holder, opening = string.match(known and known.token or '', '^(.-):(.+)$')
if not known or known.damaged or holder ~= nonce and takeover ~= known.token then
  return {'changed'}
end
local to = foreign_stores(set_aside, dead, dead_records, counters)
local ms, most_dead = math.floor(clock_us() / 1000), tonumber(max_dead_length)
local tally = (known.tracked or most_dead > 0) and new_tally(tracking, tracking_ended, tracking_news, ms)
span = max_lease > 0 and math.min(span, max_lease) or span
if holder ~= nonce then
  known.token, known.takeovers, known.since = nonce .. ':' .. (opening or ''), known.takeovers + 1, ms
elseif max_lease > 0 then
  span = math.min(span, known.since + max_lease - ms)
  if span <= 0 then -- a repeat prolongs no lease beyond the maximum, which may be newer than the lease
    redis.call('ZADD', leases, ms, name)
    return {'reaping'}
  end
end
known.span = span

local blocks, leave = blocks_of(lease, known), 0
local find_block = block_finder(blocks)
local held, found, count = read_slots(lease, 1, known.size, known.size, math.huge, blocks)
local slots, entries, gone, foreign = {}, {}, {}, {}
for i = 1, #held do
  local block = not is_entry(found[i]) and find_block(held[i])
  local is_packed = block and block.first == held[i]
  if is_packed and sound_block(found[i]) or not is_packed and is_entry(found[i]) then
    slots[#slots + 1], entries[#entries + 1] = held[i], found[i]
  else -- overwritten from outside: it leaves the lease, whose other messages are handled
    gone[#gone + 1], foreign[#foreign + 1] = is_packed and block.name or held[i], found[i]
    leave = leave + (is_packed and block.last - block.first + 1 or 1)
  end
end
if holder ~= nonce then
  count_up(counters, 'taken_over', 1)
end
local _, buried, aside = clear_foreign(to, ms, foreign)
if #gone > 0 then
  drop_slots(lease, gone)
  count_up(counters, 'in_flight', -leave)
  adjust_recount(counters, recount, name, known.token, -leave)
  known.held = count - leave
end
redis.call('HSET', lease, 'm', pack_lease(known))
if holder ~= nonce and consumer ~= '' then
  redis.call('HSET', lease, 'by', consumer)
elseif holder ~= nonce then
  redis.call('HDEL', lease, 'by')
end
redis.call('ZADD', leases, ms + span, name)
local dropped = trim_dead(dead, dead_records, counters, most_dead, buried, tally)
if tally and holder ~= nonce then
  tally.moved_all(entries, 'in_flight', 'in_flight', {
    lease = name, worker = consumer, token = known.token, begun = known.takeovers + 1,
  })
end
if tally then
  tally.write()
end
if #slots == 0 then
  redis.call('UNLINK', lease)
  redis.call('ZREM', leases, name)
  return {'maintain', 0, buried, dropped, aside}
end
return {'open', opening or '', known.takeovers, slots, entries, buried, dropped, aside}
