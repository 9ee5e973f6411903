-- Show messages in leases, those of the lease with the earliest deadline first.
-- Guarantee: reads only, in bounded steps; of a lease that was damaged from outside what can be read is shown.
-- KEYS:
--   1 leases
--   2... lease        the hashes of the leases that the answer before named
-- ARGV:
--   1 most            leases that a page names
--   2 score           deadline of the last lease that was named; this and the following with `lease` only
--   3 after           its member in `leases`
--   4 count           most messages
--   5 offset          messages of the named leases that are passed over first
--   6 max_bytes      stop reading once this much is read
--   7... name         the members in `leases` of those hashes
-- Returns: {now in ms, messages passed over, 1 when the named leases were read to their end, deadline of the last lease of the next page,
--   {names on that page}, {name, deadline, opening or "", takeovers, opened or taken over at, last extended at, 1 when it is being reaped,
--   slots, entries}...}
-- Repeat: reads again.

--- @include clock
--- @include lease
--- @include ranges
--- @include slots
--- @include lease_page
local MAX_SLOTS, LATEST_MS = 99999, 1e15 -- what is beyond them was written from outside
local ms = math.floor(clock_us() / 1000)
local names, score = lease_page(KEYS[1], '+inf', tonumber(ARGV[1]), ARGV[2], ARGV[3])
local count, offset, max_bytes = tonumber(ARGV[4] or 0), tonumber(ARGV[5] or 0), tonumber(ARGV[6] or 0)
local reply, passed, shown, bytes, ended = {}, 0, 0, 0, 1

local function slots_in(key)
  local fields, slots = redis.call('HKEYS', key), {}
  for i = 1, #fields do
    local slot = string.find(fields[i], '^%d+$') and tonumber(fields[i])
    if slot and slot <= MAX_SLOTS then
      slots[#slots + 1] = slot
    end
  end
  table.sort(slots)
  return slots
end

-- How many slots it holds, which slot it is that stands behind so many of them, and the last.
local function places(key, lease)
  if lease.held and not lease.damaged and lease.held == lease.size then
    return lease.held, function(behind) return behind + 1 end, lease.size
  end
  local slots = slots_in(key)
  return #slots, function(behind) return slots[behind + 1] end, slots[#slots]
end

for i = 7, #ARGV do
  local key, deadline = KEYS[i - 5], tonumber(redis.call('ZSCORE', KEYS[1], ARGV[i]))
  local lease = deadline and read_lease(key)
  deadline = deadline and math.max(-LATEST_MS, math.min(LATEST_MS, deadline))
  if lease and ended == 1 then
    local held, slot_behind, last = places(key, lease)
    local skipped = math.min(held, offset - passed)
    passed = passed + skipped
    if skipped < held then
      local slots, entries = {}, {}
      if shown < count and bytes < max_bytes then
        slots, entries = read_slots(key, slot_behind(skipped), last, count - shown, max_bytes - bytes)
      end
      for at = 1, #entries do
        bytes = bytes + #entries[at]
      end
      shown = shown + #slots
      ended = shown < count and bytes < max_bytes and 1 or 0
      local fenced = lease.token == '-'
      local opening = lease.since and not lease.damaged and not fenced and string.match(lease.token, ':(.+)$') or ''
      reply[#reply + 1] = {
        ARGV[i], string.format('%.0f', deadline), opening, lease.takeovers or 0, string.format('%.0f', lease.since or 0),
        string.format('%.0f', deadline - (lease.span or 0)), fenced and 1 or 0, slots, entries,
      }
    end
  end
end
return {ms, passed, ended, score, names, unpack(reply)}
