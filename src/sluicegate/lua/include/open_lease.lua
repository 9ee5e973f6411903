--- @include entry, lease, numbers, recount, write_slots
-- Write a new lease over entries, at most to live `span` ms without a heartbeat, with its `keep` ms for the record of
-- its end, for `consumer`, "" for one without a name; `tracked` when some of them may be tracked. `totals` are the
-- counters "paused", "claimed", "in_flight" and "recount". Returns the opening, which no other lease ever has.
local function open_lease(key, leases, counters, totals, us, name, nonce, span, keep, entries, consumer, tracked)
  local ms, claimed = math.floor(us / 1000), string.format('%.0f', to_integer(totals[2]) + #entries)
  local opening = string.format('%.0f-%s', us, claimed)
  local token = nonce .. ':' .. opening
  redis.call('HSET', counters, 'claimed', claimed, 'in_flight', string.format('%.0f', to_integer(totals[3]) + #entries))
  write_slots(key, pack_lease({
    token = token, since = ms, span = span, takeovers = 0, size = #entries, held = #entries, keep = keep,
    oldest = enqueued_ms_of(entries[1]), acked = 0, tracked = tracked,
  }), entries, consumer)
  adjust_recount(counters, totals[4], name, token, #entries)
  redis.call('ZADD', leases, ms + span, name)
  return opening
end
