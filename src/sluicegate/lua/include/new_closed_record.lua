-- The record of how an opening of a lease ended; `left`, `returned` and `buried` are slot ranges.
local function new_closed_record(how, token, ms, lease, returned, buried, left)
  return cjson.encode({
    how = how, token = token, at = string.format('%.0f', ms), size = lease.size, acked = lease.acked,
    returned = returned, buried = buried, left = left,
  })
end
