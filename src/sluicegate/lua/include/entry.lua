-- A stored message, by position: kind 1, sequence 2-13, enqueue time 14-25, deliveries 26-28, releases 29, then id US
-- key US headers US payload. Kind 5 belongs to a batch, kind 7 is a job; 2, 6 and 8 are 1, 5 and 7 whose deduplication
-- marker is freed when the message ends.
local PARTS = '^[^\31]+\31[^\31]*\31[^\31]*\31' -- from position 30 on

-- Two searches, because one pattern with an item per digit takes twice as long, and every message passes here.
local function is_entry(value)
  local _, digits = string.find(value, '^[125678]%x*')
  return digits ~= nil and digits >= 29 and string.find(value, PARTS, 30) ~= nil
end

local function id_of(entry)
  return string.match(entry, '^[^\31]+', 30)
end

local function deliveries_of(entry)
  return tonumber(string.sub(entry, 26, 28), 16)
end

local function enqueued_ms_of(entry)
  return tonumber(string.sub(entry, 14, 25), 16)
end

-- Whether the entry came back from a lease: delivered, or at least released.
local function was_leased(entry)
  return string.sub(entry, 26, 29) ~= '0000'
end
