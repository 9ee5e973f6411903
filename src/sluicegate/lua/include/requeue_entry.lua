--- @include entry, entry_counts
-- Restamp an entry that leaves a lease without an ack, and decide whether its message must be buried for its delivery
-- count. A message is buried for its count only out of a lease that it held alone, unless the verdict named it
-- (`named`).
local function requeue_entry(entry, failed, lease, max_delivery_count, named)
  local deliveries, releases = deliveries_of(entry) + lease.takeovers, releases_of(entry)
  local counted = failed or releases >= FREE_RELEASES
  if counted then
    deliveries = deliveries + 1
  else
    releases = releases + 1
  end
  if max_delivery_count > 0 and deliveries >= max_delivery_count then
    if counted and lease.size == 1 or failed and named then
      return restamped(entry, deliveries, releases), true
    end
    deliveries = math.max(max_delivery_count - 1, 1)
  end
  return restamped(entry, deliveries, releases), false
end

-- The reason of a burial for the count, as `bury` takes it: the message's last error, or `how` its last delivery ended.
-- `entry` has its final count. The text names takeovers that were counted, because otherwise two deliveries would look
-- like five.
local function delivery_count_reason(entry, lease, max_delivery_count, why, how)
  local given = why ~= '\31\31' and why
  if given and lease.takeovers == 0 then
    return 'max_delivery_count' .. given
  end
  local text = string.format('that was delivery %d of at most %d', deliveries_of(entry), max_delivery_count)
  if lease.takeovers > 0 then
    text = text .. string.format(', takeovers of its last lease counted (%d)', lease.takeovers)
  end
  return 'max_delivery_count' .. (given or '\31\31' .. how) .. '; ' .. text
end
