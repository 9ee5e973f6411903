-- Show messages in leases, those of the lease with the earliest deadline first.
-- Guarantee: reads only, in bounded steps; of a lease that was damaged from outside, the readable part is shown.
-- KEYS:
--   1 leases
--   2 counters
--   3... lease             the hashes of the leases that the previous answer named
-- ARGV:
--   1 max_leases           leases that a page names
--   2 score                deadline of the last lease that was named; this and the following with `lease` only
--   3 after                its member in `leases`
--   4 count                maximum messages
--   5 offset               messages of the named leases to skip first
--   6 max_bytes            stop reading once this much is read
--   7 whole                1: whole messages; 0: without headers and payload
--   8... name              the members in `leases` of those hashes
-- Returns: {now in ms, messages skipped, 1 when the named leases were read to their end, deadline of the last lease of
--   the next page, {names on that page}, {name, deadline, opening or "", takeovers, opened or taken over at, last
--   extended at, 1 when it is being reaped, consumer or "", slots, entries}...}
-- Repeat: reads again.

--- @include block_index, clock, layout, lease, lease_blocks, lease_fields, lease_page, read_slots
local MAX_SLOTS, LATEST_MS = 99999, 1e15 -- greater numbers were written from outside
local newer = newer_layout(redis.call('HGET', counters, 'layout'))
if newer then return newer end
local ms = math.floor(clock_us() / 1000)
local names, last_score = lease_page(leases, '+inf', tonumber(max_leases), score, after)
local limit, skip, bytes_left = tonumber(count or 0), tonumber(offset or 0), tonumber(max_bytes or 0)
local reply, skipped, shown, ended = {}, 0, 0, 1

-- Returns how many slots a lease holds, a function that gives the slot behind the first `n` of them, and the last slot.
local function held_slots(key, lease, blocks)
  if lease.held and not lease.damaged and lease.held == lease.size then
    return lease.held, function(n) return n + 1 end, lease.size
  end
  local found, slots = single_slots(key, blocks), {}
  for i = 1, #found do
    slots[#slots + 1] = found[i] <= MAX_SLOTS and found[i] or nil
  end
  for i = 1, #blocks do
    for slot = blocks[i].first, blocks[i].last do
      slots[#slots + 1] = slot
    end
  end
  table.sort(slots)
  return #slots, function(n) return slots[n + 1] end, slots[#slots]
end

-- At most `most` messages of the slots from `first` on, and no more once `max_bytes` are read; those of blocks too.
local function held_messages(key, first, last, most, max_bytes, blocks)
  local found, values = read_slots(key, first, last, most, max_bytes, blocks)
  local slots, entries = {}, {}
  for i = 1, #found do
    local opened = open_block(values[i]) or {values[i]}
    for at = math.max(1, first - found[i] + 1), math.min(#opened, most - #slots + math.max(0, first - found[i])) do
      slots[#slots + 1], entries[#entries + 1] = found[i] + at - 1, opened[at]
    end
  end
  return slots, entries
end

for i = name_at, #ARGV do
  local key, deadline = KEYS[lease_at + i - name_at], tonumber(redis.call('ZSCORE', leases, ARGV[i]))
  local held = deadline and read_lease(key)
  deadline = deadline and math.max(-LATEST_MS, math.min(LATEST_MS, deadline))
  if held and ended == 1 then
    local blocks = blocks_of(key, held)
    local size, slot_behind, last = held_slots(key, held, blocks)
    local passed = math.min(size, skip - skipped)
    skipped = skipped + passed
    if passed < size then
      local slots, entries = {}, {}
      if shown < limit and bytes_left > 0 then
        slots, entries = held_messages(key, slot_behind(passed), last, limit - shown, bytes_left, blocks)
      end
      for at = 1, #entries do
        bytes_left = bytes_left - #entries[at]
        if whole == '0' then
          entries[at] = string.match(entries[at], '^[^\31]*\31[^\31]*\31') or ''
        end
      end
      shown = shown + #slots
      ended = shown < limit and bytes_left > 0 and 1 or 0
      local fenced = held.token == '-'
      local opening = held.since and not held.damaged and not fenced and string.match(held.token, ':(.+)$') or ''
      reply[#reply + 1] = {
        ARGV[i], string.format('%.0f', deadline), opening, held.takeovers or 0, string.format('%.0f', held.since or 0),
        string.format('%.0f', deadline - (held.span or 0)), fenced and 1 or 0,
        redis.call('HGET', key, 'by') or '', slots, entries,
      }
    end
  end
end
return {ms, skipped, ended, last_score, names, unpack(reply)}
