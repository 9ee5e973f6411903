-- An open lease: a hash of slot number -> entry, and one packed field `m`:
-- token since span takeovers size held keep oldest acked. The token is "<nonce>:<opening>", or "-" once a reap has fenced the lease.
local LEASE = '^(%S+) (%d+) (%d+) (%d+) (%d+) (%d+) (%d+) (%d+) (%d+)$'
local DAMAGED, MOST_SLOTS, LATEST = '!', 99999, 1e15

-- What no lease of ours can have: then something else has written into the hash.
local function is_sound(lease)
  return lease.token and lease.size <= MOST_SLOTS and lease.held <= lease.size and lease.takeovers < 4096 and lease.acked <= lease.size
    and lease.since < LATEST and lease.span < LATEST and lease.oldest < LATEST and lease.keep > 0 and lease.keep < LATEST
end

-- nil when there is none. A damaged lease gets a token that matches no consumer's, so that its messages must come back.
local function read_lease(key)
  local packed = redis.call('HGET', key, 'm')
  if not packed and redis.call('EXISTS', key) == 0 then
    return nil
  end
  local token, since, span, takeovers, size, held, keep, oldest, acked = string.match(packed or '', LEASE)
  local lease = {
    token = token, since = tonumber(since), span = tonumber(span), takeovers = tonumber(takeovers), size = tonumber(size),
    held = tonumber(held), keep = tonumber(keep), oldest = tonumber(oldest), acked = tonumber(acked),
  }
  if is_sound(lease) then
    return lease
  end
  return {
    token = DAMAGED, since = 0, span = 0, takeovers = 0, size = 0, held = redis.call('HLEN', key), keep = 3600000, oldest = LATEST,
    acked = 0, damaged = true,
  }
end

local function pack_lease(lease)
  return string.format('%s %.0f %.0f %d %d %d %.0f %.0f %d', lease.token, lease.since, lease.span, lease.takeovers,
    lease.size, lease.held, lease.keep, lease.oldest, lease.acked)
end

-- What is written at the end of an opening; `left`, `returned` and `buried` are slot ranges.
local function close_record(how, token, ms, lease, returned, buried, left)
  return cjson.encode({
    how = how, token = token, at = string.format('%.0f', ms), size = lease.size, acked = lease.acked,
    returned = returned, buried = buried, left = left,
  })
end
