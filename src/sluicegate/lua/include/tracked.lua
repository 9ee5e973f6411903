-- Whether something is recorded about messages: those of kinds 5 to 8 belong to a batch or are jobs. The id of a
-- message of a batch begins with the batch and a colon, which no other id holds.
local LAST_UNTRACKED = 52 -- '4'

-- Whether any of the entries is tracked. Many of them are looked at only in a queue that has records.
local function any_tracked(hash, entries)
  if #entries > 8 and redis.call('HLEN', hash) == 0 then
    return false
  end
  for i = 1, #entries do
    if (string.byte(entries[i]) or 0) > LAST_UNTRACKED then
      return true
    end
  end
  return false
end

local function batch_of(id)
  return string.match(id, '^([^:]+):')
end
