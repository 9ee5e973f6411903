-- What an entry becomes when it leaves a lease unacked: its new stamp, and whether it must be buried for its count.
-- A message is buried for its count only out of a lease that it held alone, unless it was failed by name (`named`).
local function requeue_entry(entry, failed, lease, most, named)
  local deliveries, releases = deliveries_of(entry) + lease.takeovers, releases_of(entry)
  local counted = failed or releases >= FREE_RELEASES
  if counted then
    deliveries = deliveries + 1
  else
    releases = releases + 1
  end
  if most > 0 and deliveries >= most then
    if counted and lease.size == 1 or failed and named then
      return restamped(entry, deliveries, releases), true
    end
    deliveries = math.max(most - 1, 1)
  end
  return restamped(entry, deliveries, releases), false
end

-- Why a message is buried for its count, as `bury` takes it: the error that it had last, or `how` its last delivery ended; `entry` is counted
-- to the end. What takeovers added is told with any error: without it two deliveries would seem to be five.
local function reason_of_count(entry, lease, most, why, how)
  local told = why ~= '\31\31' and why
  if told and lease.takeovers == 0 then
    return 'max_delivery_count' .. told
  end
  local text = string.format('that was delivery %d of at most %d', deliveries_of(entry), most)
  if lease.takeovers > 0 then
    text = text .. string.format(', takeovers of its last lease counted (%d)', lease.takeovers)
  end
  return 'max_delivery_count' .. (told or '\31\31' .. how) .. '; ' .. text
end
