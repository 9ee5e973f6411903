--- @include entry_counts
-- Returns a function that makes "ms US entry" of an acked entry, with its final counts. It works by position, because
-- it runs for each message of a lease.
local function completed_records(stamp, takeovers)
  local stamps = {}
  return function(entry)
    local counts_before = string.sub(entry, 26, 29)
    if not stamps[counts_before] then
      stamps[counts_before] = string.sub(ended(entry, takeovers), 26, 29)
    end
    return stamp .. string.sub(entry, 1, 25) .. stamps[counts_before] .. string.sub(entry, 30)
  end
end
