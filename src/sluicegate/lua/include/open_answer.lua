--- @include lease
-- The answer to a claim whose lease `known` is open.
local function open_answer(known, leases, lease_name, nonce, takeover, ms)
  if known.token == '-' or known.damaged then
    return {'reaping'}
  elseif string.match(known.token, '^(.-):') == nonce or takeover == known.token then
    return {'known'}
  end
  local deadline = tonumber(redis.call('ZSCORE', leases, lease_name)) or ms
  if takeover == '' and deadline <= ms then
    return {'reaping'}
  end
  return {'held', known.token, math.max(-LATEST, math.min(LATEST, ms - (deadline - known.span)))}
end
