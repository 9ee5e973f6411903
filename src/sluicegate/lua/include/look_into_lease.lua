--- @include lease, lease_blocks, lease_fields
-- Returns how many messages a lease holds, nil without a hash, and whether it is damaged or counts them wrong.
local function look_into_lease(key)
  local size, other = redis.pcall('HLEN', key), 0
  if type(size) == 'table' then
    return 0, true
  end
  for field in pairs(size > 0 and BOOKKEEPING or {}) do
    other = other + redis.call('HEXISTS', key, field)
  end
  local known = read_lease(key) or {}
  local blocks = blocks_of(key, known)
  other = #blocks > 0 and size - count_held_slots(key, blocks) or other
  return size > 0 and size - other or nil, known.damaged, not known.damaged and known.held ~= size - other
end
