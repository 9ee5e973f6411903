-- Stored messages by position: kind 1, sequence 2-13, time 14-25, deliveries 26-28, releases 29, then id US key US headers US payload.
-- Kind 2: its deduplication marker is freed when the message ends.
local PARTS = '^[^\31]+\31[^\31]*\31[^\31]*\31' -- from position 30 on
local MAX_DELIVERIES, FREE_RELEASES = 4095, 3

-- In two looks: one pattern with an item per digit of the prefix takes twice as long, and every message passes here.
local function is_entry(value)
  local _, digits = string.find(value, '^[12]%x*')
  return digits ~= nil and digits >= 29 and string.find(value, PARTS, 30) ~= nil
end

-- The shape of a message whose kind this version does not know: a newer version's.
local function is_newer(value)
  local _, digits = string.find(value, '^[^12\31]%x*')
  return digits ~= nil and digits >= 29 and string.find(value, PARTS, 30) ~= nil
end

local function sequence_of(entry)
  return tonumber(string.sub(entry, 2, 13), 16)
end

local function enqueued_ms_of(entry)
  return tonumber(string.sub(entry, 14, 25), 16)
end

local function deliveries_of(entry)
  return tonumber(string.sub(entry, 26, 28), 16)
end

local function releases_of(entry)
  return tonumber(string.sub(entry, 29, 29), 16)
end

-- Whether it came back from a lease: delivered, or at least released.
local function was_leased(entry)
  return string.sub(entry, 26, 29) ~= '0000'
end

local function id_of(entry)
  return string.match(entry, '^[^\31]+', 30)
end

local function restamped(entry, deliveries, releases)
  return string.sub(entry, 1, 25)
    .. string.format('%03x%x', math.min(deliveries, MAX_DELIVERIES), releases)
    .. string.sub(entry, 30)
end

local function is_bound(entry)
  return string.byte(entry) == 50
end

local function key_of(entry)
  return string.match(entry, '^[^\31]+\31([^\31]*)', 30)
end

-- As the entry stands once the delivery under way is counted as ended.
local function ended(entry, takeovers)
  return restamped(entry, deliveries_of(entry) + takeovers + 1, releases_of(entry))
end
