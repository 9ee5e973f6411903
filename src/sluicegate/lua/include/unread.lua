--- @include numbers
-- What a group of a stream has not read yet is pending in it. A queue has no group (""), and no such table.
local LAST_ID = '18446744073709551615-18446744073709551615' -- nothing can follow it

-- Returns the group's `position`, which is the id that it read last, its `lag`, which is the number of entries behind
-- it, nil where the server does not know that, how many entries are `held` by consumers of other libraries, and whether
-- the server `counts` what a group has read. Stops the script with Redis's error NOGROUP when there is no such group.
local function read_group(stream, group)
  if group == '' then
    return nil
  end
  local groups = redis.pcall('XINFO', 'GROUPS', stream)
  for i = 1, #groups do
    if groups[i][2] == group then
      local found = {}
      for at = 1, #groups[i], 2 do
        found[groups[i][at]] = groups[i][at + 1]
      end
      local lag = tonumber(found.lag or nil)
      -- The server counts entries that were trimmed before the group read them.
      lag = lag and math.min(lag, redis.call('XLEN', stream))
      return {
        stream = stream, group = group, position = found['last-delivered-id'], lag = lag, held = found.pending,
        counts = found['entries-read'] ~= nil,
      }
    end
  end
  redis.call('XPENDING', stream, group)
end

-- Read at most `limit` entries behind `after`, and no more once `max_bytes` are read, and call `visit` with id and
-- fields of each. Returns how many were read, whether they are the last ones, and the id of the last.
local function read_entries(stream, after, limit, max_bytes, visit)
  local chunk, count, bytes = 1, 0, 0
  while count < limit and bytes < max_bytes do
    local wanted = math.min(chunk, limit - count)
    local found = after == LAST_ID and {} or redis.call('XRANGE', stream, '(' .. after, '+', 'COUNT', wanted)
    local number, size = #found, bytes
    for i = 1, number do
      local fields = found[i][2]
      for at = 1, #fields do
        size = size + #fields[at]
      end
      visit(found[i][1], fields)
      if size >= max_bytes then
        return count + i, i == number and number < wanted, found[i][1]
      end
    end
    bytes, count, after = size, count + number, number > 0 and found[number][1] or after
    if number < wanted then
      return count, true, after
    end
    -- The size of the entries so far limits the next chunk, so that little more is read than may be.
    chunk = math.max(1, math.min(chunk * 4, 1000, math.ceil((max_bytes - bytes) * count / math.max(1, bytes))))
  end
  return count, false, after
end

-- Move the group behind the entries that were read up to the id `last`, `count` in number. `ended`: none follows.
local function advance_group(unread, last, count, ended)
  local lag = unread.lag or ended and count
  if unread.counts and lag then
    local info, added = redis.call('XINFO', 'STREAM', unread.stream), nil
    for at = 1, #info, 2 do
      added = info[at] == 'entries-added' and info[at + 1] or added
    end
    -- As many as were ever added, except those that follow.
    local read = string.format('%.0f', math.max(0, added - math.max(0, lag - count)))
    redis.call('XGROUP', 'SETID', unread.stream, unread.group, last, 'ENTRIESREAD', read)
  else
    redis.call('XGROUP', 'SETID', unread.stream, unread.group, last)
  end
  unread.position, unread.lag = last, lag and math.max(0, lag - count)
end

-- Returns the id of the first entry that the group has not read, or nil.
local function first_unread(unread)
  if unread.lag == 0 or unread.position == LAST_ID then
    return nil
  end
  local first = redis.call('XRANGE', unread.stream, '(' .. unread.position, '+', 'COUNT', 1)[1]
  return first and first[1]
end

-- How many entries the group has not read: at least that many, where the server does not know it, and there are more
-- than a script can count.
local function count_unread(unread)
  local first = not unread.lag and redis.call('XRANGE', unread.stream, '-', '+', 'COUNT', 1)[1]
  if first and first_unread(unread) == first[1] then
    return redis.call('XLEN', unread.stream)
  end
  return unread.lag or (read_entries(unread.stream, unread.position, 10000, 4194304, function() end))
end

-- Whether consumers of other libraries hold entries that it is time to look at: adopt.lua says when again.
local function is_adoption_due(unread, counters, ms)
  local next_ms = unread.held > 0 and to_integer(redis.call('HGET', counters, 'adopt_at'))
  return next_ms and (next_ms <= ms or next_ms > ms + 60000)
end

-- Whether a claim would find something.
local function is_claimable(returned, pending, unread)
  if unread then
    return redis.call('EXISTS', returned) > 0 or first_unread(unread) ~= nil
  end
  return redis.call('EXISTS', returned, pending) > 0
end
