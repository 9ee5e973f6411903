-- The deduplication marker of a message ends with the message. That of a queue is deleted. That of a stream names the
-- groups that have not ended the message yet: "id US batch", and "US g:<group>" for each group that existed when the
-- message was published. It is deleted once none of them is left.

local function group_note(name)
  return '\31g:' .. (string.gsub(name, '\31', '%%1F'))
end

-- The notes of a stream's groups, without those of replays, for which no key is held.
local function group_notes(stream)
  local found, notes = redis.pcall('XINFO', 'GROUPS', stream), {}
  for i = 1, #found do
    if string.sub(found[i][2], 1, 8) ~= '~replay-' then
      notes[#notes + 1] = group_note(found[i][2])
    end
  end
  return notes
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
  local note = group_note(group)
  local first, last = string.find((owner or '') .. '\31', note .. '\31', 1, true)
  if not first or string.match(owner, '^[^\31]*') ~= id then
    return
  end
  local value, exists, notes = string.sub(owner, 1, first - 1) .. string.sub(owner, last), {}, group_notes(stream)
  for i = 1, #notes do
    exists[notes[i]] = true
  end
  for left in string.gmatch(value, '\31g:[^\31]*') do
    if exists[left] then
      redis.call('SET', key, value, 'KEEPTTL')
      return
    end
  end
  redis.call('DEL', key)
end

-- Hold a marker again, for at least `ms`, for a message that was dead. A marker of another message of a stream stays.
local function hold_marker(key, owner, id, ms, group)
  local value = id
  if group ~= '' then
    local note = group_note(group)
    value = owner or id .. '\31'
    if string.match(value, '^[^\31]*') ~= id then
      return
    end
    value = string.find(value .. '\31', note .. '\31', 1, true) and value or value .. note
  end
  redis.call('SET', key, value, 'PX', math.max(ms, redis.call('PTTL', key)))
end
