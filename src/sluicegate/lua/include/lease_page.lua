-- A page of lease names whose deadline is `mark` at most, earliest first: at most `max_leases`, from behind the lease
-- `after`, or from its former place if that lease ended or was extended. Then some leases are named twice, but none is
-- left out. Also returns the deadline of the page's last lease.
local function lease_page(leases, mark, max_leases, score, after)
  local first, last = 0, redis.call('ZCOUNT', leases, '-inf', mark) - 1
  if after then
    local known = tonumber(redis.call('ZSCORE', leases, after))
    local is_there = known == tonumber(score)
    first = is_there and redis.call('ZRANK', leases, after) + 1 or redis.call('ZCOUNT', leases, '-inf', '(' .. score)
  end
  local names = first <= last and redis.call('ZRANGE', leases, first, math.min(first + max_leases - 1, last)) or {}
  return names, #names > 0 and redis.call('ZSCORE', leases, names[#names]) or ''
end
