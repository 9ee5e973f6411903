-- The place of an entry in the first order of its queue.
local function sequence_of(entry)
  return tonumber(string.sub(entry, 2, 13), 16)
end
