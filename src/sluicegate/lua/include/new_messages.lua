--- @include unpacked
-- The messages of a publish that are new, and the values that store them.

-- Decide about each message: `fresh` and `mine` count new ones and those of an earlier attempt, `new` lists the new
-- ones by number from 1, nil for all, `refused` the positions for which there is no room among `most`, and `ids` has
-- the numbers of the new ones by the place of their key. `reply` has a pair per duplicate behind its first item.
local function decide(prefix, numbers, count, markers, distinct, most)
  local owners, names, rank, number_of = markers.owners, markers.names, markers.rank, unpacked('s', numbers, count, 1)
  local self, owned = {fresh = count, mine = 0, refused = {}, ids = {}, reply = {0}, number_of = number_of}, {}
  if distinct and count <= most and next(owners) == nil then
    self.ids = rank and {} or number_of
    for i = 1, rank and count or 0 do
      self.ids[rank[i]] = number_of[i]
    end
    return self
  end
  local new, fresh, reply = {}, 0, self.reply
  for i = 1, count do
    local at, number = rank and rank[i] or i, number_of[i]
    local owner = owners[at] or not distinct and owned[names[at]]
    if not owner and fresh >= most then
      self.refused[#self.refused + 1] = i - 1
    elseif not owner then
      fresh = fresh + 1
      new[fresh], self.ids[at] = i, number
      if not distinct then
        owned[names[at]] = prefix .. number
      end
    elseif owner == prefix .. number then
      self.mine = self.mine + 1
    else
      reply[#reply + 1] = i - 1
      reply[#reply + 1] = owner
    end
  end
  self.fresh, self.new = fresh, new
  return self
end

-- Entries of the new messages, whose parts are in `argv` from `first` on.
local function entries_of(found, kind, sequence, stamp, prefix, argv, first)
  local entries, head, number_of, new, format = {}, kind .. '%012x', found.number_of, found.new, string.format
  stamp, first = stamp .. prefix, first - 1
  for at = 1, found.fresh do
    local i = new and new[at] or at
    entries[at] = format(head, sequence + at) .. stamp .. number_of[i] .. argv[first + i]
  end
  return entries
end

-- The new messages where some parts are blocks: `runs` lists how many messages each part has. Only the new messages of
-- a block are stored, with sequences one after the other.
local function values_of(found, kind, sequence, stamp, prefix, argv, first, runs)
  --- @inside block_index, block_pieces
  local values, head, new, position, at = {}, string.char(string.byte(kind) + 2), found.new, 0, 1
  for size in string.gmatch(runs, '%d+') do
    local part, places, value = argv[first], {}, nil
    size, first = tonumber(size), first + 1
    while new and new[at] and new[at] <= position + size do
      places[#places + 1], at = new[at] - position, at + 1
    end
    local stored, stamped = new and #places or size, string.format('%012x', sequence + 1) .. stamp
    if size == 1 then
      value = kind .. stamped .. prefix .. position .. part
    elseif stored < size then
      value = keep_in_block(index_block(head .. stamped .. part), places, true)
    else
      value = head .. stamped .. part
    end
    if stored > 0 then
      values[#values + 1] = value
    end
    sequence, position = sequence + stored, position + size
  end
  return values
end
