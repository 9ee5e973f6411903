--- @include dead, entry, entry_sequence, foreign_values, requeue_entry
-- Requeue the messages of an expired lease, or bury them for their delivery count; store values that are no messages.
-- `to` holds what `foreign_stores` makes, and `returned`; `free` frees the marker of a buried message, `tally` may be
-- nil. Returns how many were requeued, buried, buried as foreign, and set aside.
local function requeue_expired(to, ms, entries, lease, max_delivery_count, free, tally)
  local back, buried, foreign, aside = 0, 0, 0, 0
  for i = 1, #entries do
    if not is_entry(entries[i]) then
      local newer, other = store_foreign(to, ms, entries[i])
      aside, foreign = aside + newer, foreign + other
    else
      local entry, deadly = requeue_entry(entries[i], true, lease, max_delivery_count, false)
      local how = 'lease expired while being handled'
      local why = deadly and delivery_count_reason(entry, lease, max_delivery_count, '\31\31', how) or '\31\31' .. how
      if deadly then
        bury(to.dead, to.records, ms, entry, id_of(entry), why)
        buried = buried + 1
        free(id_of(entry))
      else
        redis.call('ZADD', to.returned, sequence_of(entry), entry)
        back = back + 1
      end
      if tally then
        tally.moved(entry, 'in_flight', deadly and 'dead' or 'waiting', {why = why})
      end
    end
  end
  return back, buried, foreign, aside
end
