--- @include entry, lease, numbers, recount, write_slots
-- Write a new lease over the messages of a selected batch, at most to live `span` ms without a heartbeat, with its
-- `keep` ms for the record of its end, for `consumer`, "" for one without a name; `tracked` when some of them may be
-- tracked. `totals` are the counters "paused", "claimed", "in_flight" and "recount". Returns the opening, which no
-- other lease ever has.
local function open_lease(key, leases, counters, totals, us, name, nonce, span, keep, batch, consumer, tracked)
  local ms, claimed = math.floor(us / 1000), string.format('%.0f', to_integer(totals[2]) + batch.size)
  local opening = string.format('%.0f-%s', us, claimed)
  local token = nonce .. ':' .. opening
  local in_flight = string.format('%.0f', to_integer(totals[3]) + batch.size)
  redis.call('HSET', counters, 'claimed', claimed, 'in_flight', in_flight)
  write_slots(key, pack_lease({
    token = token, since = ms, span = span, takeovers = 0, size = batch.size, held = batch.size, keep = keep,
    oldest = enqueued_ms_of(batch.taken[1]), acked = 0, tracked = tracked, blocks = next(batch.counts) ~= nil,
  }), batch.taken, batch.counts, consumer)
  adjust_recount(counters, totals[4], name, token, batch.size)
  redis.call('ZADD', leases, ms + span, name)
  return opening
end
