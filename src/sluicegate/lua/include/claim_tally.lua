--- @include tracked, tracking
-- The tally of a claim, nil when neither its messages nor what a maximum of dead messages may drop can be tracked.
local function claim_tally(hash, ended, news, ms, batch, max_dead_length)
  local is_needed = any_tracked(hash, batch.taken) or any_tracked(hash, batch.excluded)
  if is_needed or #batch.foreign > 0 and max_dead_length > 0 then
    return new_tally(hash, ended, news, ms)
  end
end

-- Record that a lease took messages, for a whole ack too, and that others are excluded and delayed.
local function record_claim(tally, lease, batch, detail)
  tally.took(batch.taken, detail)
  local taken = #batch.taken > 0 and tally.taken()
  if taken then
    redis.call('HSET', lease, 'tracked', taken)
  end
  tally.moved_all(batch.excluded, 'waiting', 'delayed')
  tally.write()
end
