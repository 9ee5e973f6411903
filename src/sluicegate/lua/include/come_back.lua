-- What an entry becomes when it leaves a lease unacked: its new stamp, and whether it must be buried for its count.
-- A message is buried for its count only out of a lease that it held alone, unless the verdict was given to it by name (`named`).
local function come_back(entry, counted, lease, most, named)
  local deliveries, releases = deliveries_of(entry) + lease.takeovers, releases_of(entry)
  if counted then
    deliveries = deliveries + 1
  elseif releases < FREE_RELEASES then
    releases = releases + 1
  else
    deliveries = deliveries + 1
  end
  if most > 0 and deliveries >= most then
    if counted and (named or lease.size == 1) then
      return restamped(entry, deliveries, releases), true
    end
    deliveries = math.max(most - 1, 1)
  end
  return restamped(entry, deliveries, releases), false
end
