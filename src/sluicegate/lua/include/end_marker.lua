--- @include group_notes
-- The deduplication marker of a message ends with the message. That of a queue is freed with the markers' next `flush`.
-- That of a stream loses the note of the group that has ended the message, and is freed with its last one. `place` is
-- that of the key among the fields; `stream` and `group` are those of the group, "" for a queue.
local function end_marker(markers, place, id, stream, group)
  if group == '' then
    markers.free(place, id)
    return
  end
  local note = group_note(group)
  markers.rewrite(place, id, function(owner)
    local first, last = string.find(owner .. '\31', note .. '\31', 1, true)
    if not first then
      return nil
    end
    local left, exists, notes = string.sub(owner, 1, first - 1) .. string.sub(owner, last), {}, group_notes(stream)
    for i = 1, #notes do
      exists[notes[i]] = true
    end
    for other in string.gmatch(left, '\31g:[^\31]*') do
      if exists[other] then
        return left
      end
    end
    return ''
  end)
end

-- Hold a marker again, for at least `ms`, for a message that was dead. A marker of another message of a stream stays.
local function hold_marker(markers, place, id, ms, group)
  local owner, value = markers.owners[place], id
  if group ~= '' then
    local note = group_note(group)
    value = owner or id .. '\31'
    if string.match(value, '^[^\31]*') ~= id then
      return
    end
    value = string.find(value .. '\31', note .. '\31', 1, true) and value or value .. note
  end
  markers.hold(place, id, value, ms)
end
