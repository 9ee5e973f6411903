-- Set one field in the record of a lease's end, or write a new record where there is none. The record lives at least
-- `ms` from now on.
local function write_closed_record(key, record, field, value, ms)
  local life = record and math.max(ms, redis.call('PTTL', key)) or ms
  record = record or {how = field}
  record[field] = value
  redis.call('SET', key, cjson.encode(record), 'PX', life)
end
