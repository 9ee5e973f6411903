--- @include newest_sequence, numbers, unread
-- Take what a group has not read into a batch, until it has `room` messages: at most `max_bytes`, and one in any
-- case. The batch gets how many were `scanned`, the id of the `last` and its `sequence`, which follow the sequence
-- `published`, and whether the stream `ended` with it.
local function take_unread(batch, returned, unread, published, room, max_bytes)
  --- @inside stream_entry
  local make_message, sequence, taken, count = message_maker(), to_integer(published), batch.taken, #batch.taken
  if sequence <= 0 then
    sequence = newest_sequence(nil, returned) -- the counter was lost
  end
  local function take(id, fields)
    count, sequence = count + 1, sequence + 1
    taken[count] = make_message(id, fields, sequence)
  end
  batch.scanned, batch.ended, batch.last = read_entries(unread.stream, unread.position, room - count, max_bytes, take)
  batch.sequence = string.format('%.0f', sequence)
end
