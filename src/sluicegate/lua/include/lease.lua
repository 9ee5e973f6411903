-- An open lease: a hash of slot number -> entry, and one packed field `m`:
-- token since span takeovers size held keep oldest acked. The token is "<nonce>:<opening>", or "-" once a reap has fenced the lease.
local LEASE = '^(%S+) (%d+) (%d+) (%d+) (%d+) (%d+) (%d+) (%d+) (%d+)$'

local function read_lease(key)
  local packed = redis.call('HGET', key, 'm')
  if not packed then
    return nil
  end
  local token, since, span, takeovers, size, held, keep, oldest, acked = string.match(packed, LEASE)
  return {
    token = token, since = tonumber(since), span = tonumber(span), takeovers = tonumber(takeovers), size = tonumber(size),
    held = tonumber(held), keep = tonumber(keep), oldest = tonumber(oldest), acked = tonumber(acked),
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
