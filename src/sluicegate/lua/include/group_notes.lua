-- The marker of a stream's message names the groups that have not ended the message yet: "id US batch", and
-- "US g:<group>" for each group that existed when the message was published. It is freed once none of them is left.

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
