-- The deduplication marker of a message ends with the message. That of a queue is deleted. That of a stream holds the
-- key until every group of the stream has ended the message: "id US batch", and "US g:<group>" for each group that has.

local function group_note(name)
  return '\31g:' .. (string.gsub(name, '\31', '%%1F'))
end

-- The names of a stream's groups, without those of replays, for which no key is held.
local function groups_of(stream)
  local found, names = redis.pcall('XINFO', 'GROUPS', stream), {}
  for i = 1, #found do
    if string.sub(found[i][2], 1, 8) ~= '~replay-' then
      names[#names + 1] = found[i][2]
    end
  end
  return names
end

-- End a marker for the message `id`, if it is its own by the marker's value `owner`. `stream` and `group` are those of
-- the group that has ended the message, "" for a queue.
local function end_marker(key, owner, id, stream, group)
  if group == '' then
    if owner == id then
      redis.call('DEL', key)
    end
    return
  end
  if not owner or string.match(owner, '^[^\31]*') ~= id then
    return
  end
  local note, groups = group_note(group), groups_of(stream)
  local value = owner
  if not string.find(owner .. '\31', note .. '\31', 1, true) then
    value = owner .. note
  end
  for i = 1, #groups do
    if not string.find(value .. '\31', group_note(groups[i]) .. '\31', 1, true) then
      redis.call('SET', key, value, 'KEEPTTL')
      return
    end
  end
  redis.call('DEL', key)
end

-- Hold a marker again, for at least `ms`, for a message that was dead. Of a stream, every group but this one has ended
-- the message, unless the marker says otherwise; a marker of another message stays.
local function hold_marker(key, owner, id, ms, stream, group)
  local value = id
  if group ~= '' then
    if owner and string.match(owner, '^[^\31]*') ~= id then
      return
    end
    local groups = not owner and groups_of(stream) or {}
    value = owner or id .. '\31'
    for i = 1, #groups do
      value = value .. group_note(groups[i])
    end
    local first, last = string.find(value .. '\31', group_note(group) .. '\31', 1, true)
    value = first and string.sub(value, 1, first - 1) .. string.sub(value, last) or value
  end
  redis.call('SET', key, value, 'PX', math.max(ms, redis.call('PTTL', key)))
end
