-- Take the next page of another library's list: its oldest values move into a list beside it, one page at a time.
-- Guarantee: a value is in one of the two lists at any moment, and its page stays until a call names it as done.
-- KEYS:
--   1 list                 the oldest value is the rightmost one
--   2 page                 the values that were taken, the oldest rightmost; right of them the mark of the page: its
--                          number, and the id of this source
--   3... notes             sorted sets and hashes with values of the list as members or fields; a value's are removed
--                          once its page is done
-- ARGV:
--   1 done                 number of the page whose values are in their new place; 0 for none
--   2 nonce                the id of the source, if it has none yet
--   3 count                maximum values
--   4 max_bytes            take no further value once this much is taken
--   5 keep_ms              how long the mark is kept when no value is taken
--   6 named                1: take the values that follow; 0: take the oldest
--   7... wanted            values to take, the oldest first
-- Returns: {number of the page, id of the source, time in ms, values...}, the oldest first; no values when none is left
-- Repeat: answers with the page that was taken.

--- @include clock
redis.call('PERSIST', page) -- allowed in a full Redis, and so is all that follows
redis.call('LLEN', list)
local length, us = redis.call('LLEN', page), clock_us()
local number, source = string.match(redis.call('LINDEX', page, -1) or '', '^(%d+) (.+)$')
number, source = tonumber(number or 0), source or nonce

local function remove_notes(values)
  for i = notes_at, #KEYS do
    local kind = redis.call('TYPE', KEYS[i]).ok
    local remove = kind == 'zset' and 'ZREM' or kind == 'hash' and 'HDEL'
    for first = 1, remove and #values or 0, 1000 do
      redis.call(remove, KEYS[i], unpack(values, first, math.min(first + 999, #values)))
    end
  end
end

if length < 2 or number == tonumber(done) then
  if length > 1 and #KEYS >= notes_at then
    remove_notes(redis.call('LRANGE', page, 0, -2))
  end
  number = math.max(us, number + 1)
  redis.call('UNLINK', page)
  redis.call('RPUSH', page, string.format('%.0f %s', number, source))
  local taken, bytes, limit, most = 0, 0, tonumber(count), tonumber(max_bytes)
  if named == '1' then
    for i = wanted_at, #ARGV do
      if redis.call('LREM', list, -1, ARGV[i]) == 1 then
        taken = redis.call('LPUSH', page, ARGV[i])
      end
    end
  else
    while taken < limit and bytes < most do
      local value = redis.call('RPOPLPUSH', list, page)
      if not value then
        break
      end
      taken, bytes = taken + 1, bytes + #value
    end
  end
  if taken == 0 then
    redis.call('PEXPIRE', page, keep_ms)
  end
end
local values = redis.call('LRANGE', page, 0, -2)
local reply = {string.format('%.0f', number), source, string.format('%.0f', math.floor(us / 1000))}
for i = #values, 1, -1 do
  reply[#reply + 1] = values[i]
end
return reply
