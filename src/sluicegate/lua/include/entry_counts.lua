--- @include entry
-- The two counts of an entry, deliveries and releases, and the entry with new ones.
local MAX_DELIVERIES, FREE_RELEASES = 4095, 3

local function releases_of(entry)
  return tonumber(string.sub(entry, 29, 29), 16)
end

local function restamped(entry, deliveries, releases)
  return string.sub(entry, 1, 25)
    .. string.format('%03x%x', math.min(deliveries, MAX_DELIVERIES), releases)
    .. string.sub(entry, 30)
end

-- The entry once the current delivery is counted as ended.
local function ended(entry, takeovers)
  return restamped(entry, deliveries_of(entry) + takeovers + 1, releases_of(entry))
end
