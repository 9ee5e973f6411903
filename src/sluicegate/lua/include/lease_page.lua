-- Names of leases whose deadline is `mark` at most, soonest first: at most `most`, from behind the lease that was named last, or from where
-- that one stood when it has gone or was extended; then some are named again, but none is left out. Also the deadline of the last of them.
local function lease_page(leases, mark, most, score, after)
  local first, last = 0, redis.call('ZCOUNT', leases, '-inf', mark) - 1
  if after then
    local known = tonumber(redis.call('ZSCORE', leases, after))
    first = known == tonumber(score) and redis.call('ZRANK', leases, after) + 1 or redis.call('ZCOUNT', leases, '-inf', '(' .. score)
  end
  local names = first <= last and redis.call('ZRANGE', leases, first, math.min(first + most - 1, last)) or {}
  return names, #names > 0 and redis.call('ZSCORE', leases, names[#names]) or ''
end
