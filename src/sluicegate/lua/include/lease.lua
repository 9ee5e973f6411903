-- An open lease is a hash of slot number -> entry with one packed field `m`: token since span takeovers size held keep
-- oldest acked, and a tenth if it took messages of batches or jobs ("t"), blocks ("b") or both ("tb"). The token is
-- "<nonce>:<opening>", or "-" once a reap has fenced the lease.
local LEASE = '^(%S+) (%d+) (%d+) (%d+) (%d+) (%d+) (%d+) (%d+) (%d+) ?(t?b?)$'
local LATEST = 1e15

-- Returns nil when there is no lease. A damaged lease gets a token that matches no consumer's, so that its messages
-- must be requeued. `fresh`: no call can have opened this lease before, so a missing packed field proves that there is
-- none.
local function read_lease(key, fresh)
  local packed = redis.call('HGET', key, 'm')
  if not packed and (fresh or redis.call('EXISTS', key) == 0) then
    return nil
  end
  local token, since, span, takeovers, size, held, keep, oldest, acked, flags = string.match(packed or '', LEASE)
  if token then
    since, span, takeovers, size = tonumber(since), tonumber(span), tonumber(takeovers), tonumber(size)
    held, keep, oldest, acked = tonumber(held), tonumber(keep), tonumber(oldest), tonumber(acked)
    -- Numbers that no lease of this library can have were written by something else.
    if size <= 99999 and held <= size and acked <= size and takeovers < 4096 and since < 1e15 and span < 1e15
      and oldest < 1e15 and keep > 0 and keep < 1e15 then
      return {
        token = token, since = since, span = span, takeovers = takeovers, size = size, held = held, keep = keep,
        oldest = oldest, acked = acked, tracked = string.byte(flags) == 116, blocks = string.byte(flags, -1) == 98,
      }
    end
  end
  return {
    token = '!', since = 0, span = 0, takeovers = 0, size = 0, held = redis.call('HLEN', key), keep = 3600000,
    oldest = LATEST, acked = 0, tracked = true, blocks = true, damaged = true,
  }
end

local function pack_lease(lease)
  local flags = (lease.tracked and 't' or '') .. (lease.blocks and 'b' or '')
  return string.format('%s %.0f %.0f %d %d %d %.0f %.0f %d%s', lease.token, lease.since, lease.span, lease.takeovers,
    lease.size, lease.held, lease.keep, lease.oldest, lease.acked, flags ~= '' and ' ' .. flags or '')
end
