--- @include numbers, valid_ranges
-- The answer to a claim from the record of how its lease ended; nil when the lease may be opened again.
local function closed_answer(record, lease_name, nonce, run, ms)
  local stays_ended = record.how == 'acked'
  if not stays_ended and run and record.how == 'returned' then
    stays_ended = redis.call('SMISMEMBER', run, '\31' .. lease_name)[1] == 1
  end
  if stays_ended then
    return {'acked', record.acked, count_slots(record.returned), count_slots(record.buried)}
  elseif record.empty and to_integer(record.empty) > ms then
    return {'empty', -1, 0, 0, 0, 1}
  elseif record.gone == nonce then
    return {'empty', -1, 0, 0, 0}
  end
end
