-- Note something in the record of a lease's end, or in a record of its own where there is none, for so long at least.
local function write_closed_record(key, record, field, value, ms)
  local life = record and math.max(ms, redis.call('PTTL', key)) or ms
  record = record or {how = field}
  record[field] = value
  redis.call('SET', key, cjson.encode(record), 'PX', life)
end
