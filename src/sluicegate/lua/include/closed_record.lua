--- @include valid_ranges
-- Decode the record of how a lease ended. From a record that was damaged from outside, only the readable fields are
-- kept. A record without a token proves nothing, but it still counts as a record.
local function read_closed_record(raw)
  local readable, found = pcall(cjson.decode, raw)
  local record = {}
  if readable and type(found) == 'table' then
    for _, name in ipairs({'how', 'token', 'at', 'empty', 'gone'}) do
      record[name] = type(found[name]) == 'string' and found[name] or nil
    end
    for _, name in ipairs({'size', 'acked', 'concluded'}) do
      record[name] = type(found[name]) == 'number' and found[name] or nil
    end
    for _, name in ipairs({'returned', 'buried', 'left'}) do
      record[name] = type(found[name]) == 'string' and valid_ranges(found[name]) or nil
    end
  end
  if not record.acked or not record.size or not record.returned or not record.buried or not record.left then
    record.token = nil
    record.how = record.how ~= 'acked' and record.how ~= 'returned' and record.how or nil
  end
  return record
end
