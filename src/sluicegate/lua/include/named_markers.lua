--- @include clock, marker_chain, marker_changes, markers
-- The markers of values that an answer named; nil when none has a key. Also the answer when the client knows another
-- chain, and the chain.
local function named_markers(counters, known_chain, plan, fields, keys, first)
  if fields == '' then
    return nil
  end
  local chain, answer = chain_of(counters, redis.call('HGET', counters, 'markers'), known_chain)
  if not chain then
    return nil, answer
  end
  return with_changes(markers_in(plan, fields, keys, first, math.floor(clock_us() / 1000), chain), chain), nil, chain
end
