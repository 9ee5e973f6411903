-- What an entry becomes when it leaves a lease unacked: its new stamp, and whether it must be buried for its count.
-- A message is buried for its count only out of a lease that it held alone, unless it was failed by name (`named`).
local function come_back(entry, failed, lease, most, named)
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
