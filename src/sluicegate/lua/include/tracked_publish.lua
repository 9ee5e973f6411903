--- @include numbers, stored_outcomes, tracking
-- What a publish records of a batch and of jobs.

-- The outcomes of a call of a batch are in a field of the batch's record, so that they live as long as the batch. A
-- call without outcomes whose batch is gone is too old; one whose batch is sealed is not of this batch.
local function batch_outcomes(hash, batch, call)
  local found = redis.call('HMGET', hash, 'c:' .. call, 'b:' .. batch .. ':total', 'b:' .. batch .. ':sealed')
  if found[1] then
    redis.call('HSET', hash, 'c:' .. call, found[1]) -- WAIT answers for the last write of its connection
    local readable, reply = pcall(cjson.decode, found[1])
    return readable and type(reply) == 'table' and reply[1] and reply or {-1}
  end
  return not found[2] and {-1} or found[3] and {-3} or nil
end

-- The outcomes of an earlier attempt, from the receipt or from the record of the batch; nil without any.
local function known_outcomes(receipt, receipt_ms, hash, batch, call)
  if batch ~= '' then
    return batch_outcomes(hash, batch, call)
  end
  return receipt_ms > 0 and stored_outcomes(receipt, receipt_ms) or nil
end

local function store_outcomes(receipt, receipt_ms, hash, batch, call, reply)
  if batch ~= '' then
    local calls, number = 'b:' .. batch .. ':calls', tonumber(string.match(call, ':(%d+)$')) + 1
    number = math.max(number, to_integer(redis.call('HGET', hash, calls)))
    redis.call('HSET', hash, calls, number, 'c:' .. call, cjson.encode(reply))
  elseif receipt_ms > 0 then
    redis.call('SET', receipt, cjson.encode(reply), 'PX', receipt_ms)
  end
end

-- Record new messages before they are stored: a batch must never be complete while one of its messages waits. `kinds`
-- are those of jobs, of each or of all, joined by US; `lost` are the messages that the new ones drop.
local function record_publish(hash, ended, news, ms, batch, kinds, entries, due, lost)
  local tally, names, fields = new_tally(hash, ended, news, ms), {}, {}
  if batch ~= '' then
    tally.count(batch, 'new', 'total', #entries)
  end
  for name in string.gmatch(kinds .. '\31', '([^\31]*)\31') do
    names[#names + 1] = name
  end
  for i = 1, kinds ~= '' and #entries or 0 do
    local id, payload = string.match(entries[i], '^([^\31]*)\31[^\31]*\31[^\31]*\31(.*)$', 30)
    local name = names[tonumber(string.match(id, '%d+$')) + 1] or names[1]
    fields[#fields + 1] = 'j:' .. id
    fields[#fields + 1] = string.format('%s\31%.0f\31', name, ms) .. payload
  end
  if #fields > 0 then
    redis.call('HSET', hash, unpack(fields))
  end
  if due then
    tally.moved_all(entries, 'waiting', 'delayed')
  end
  tally.moved_all(lost, 'waiting', 'gone', {why = 'dropped\31\31'})
  tally.write()
end
