-- The message that a group of a stream makes of an entry of the stream. The message's id is the entry's. The field
-- `data` is the payload, `headers` its headers, `key` its deduplication key, and `policy` says "until_acked" when the
-- group's end of the message counts for the key. Whatever another client has written is a message as well.
local MAX_TIME = 281474976710655 -- a message has room for no greater time

local function of_bytes(first, last)
  return string.char(first) .. '-' .. string.char(last)
end

local function is_utf8(value)
  local rest = '[' .. of_bytes(128, 191) .. ']'
  local characters = {
    '[' .. of_bytes(194, 223) .. ']' .. rest,
    string.char(224) .. '[' .. of_bytes(160, 191) .. ']' .. rest,
    '[' .. of_bytes(225, 236) .. of_bytes(238, 239) .. ']' .. rest .. rest,
    string.char(237) .. '[' .. of_bytes(128, 159) .. ']' .. rest,
    string.char(240) .. '[' .. of_bytes(144, 191) .. ']' .. rest .. rest,
    '[' .. of_bytes(241, 243) .. ']' .. rest .. rest .. rest,
    string.char(244) .. '[' .. of_bytes(128, 143) .. ']' .. rest .. rest,
  }
  for i = 1, #characters do
    value = string.gsub(value, characters[i], '.')
  end
  return not string.find(value, '[' .. of_bytes(128, 255) .. ']')
end

-- Returns a text as JSON; of bytes that are not UTF-8, each is the character of its number.
local function json_text(value)
  local quoted, high = cjson.encode(value), '[' .. of_bytes(128, 255) .. ']'
  if string.find(value, high) and not is_utf8(value) then
    quoted = string.gsub(quoted, high, function(byte) return string.format('\\u%04x', string.byte(byte)) end)
  end
  return quoted
end

-- Returns a JSON object of fields and values, except the field `left_out`; '' when nothing is left.
local function json_of_fields(fields, left_out)
  local parts = {}
  for at = 1, #fields - 1, 2 do
    if fields[at] ~= left_out then
      parts[#parts + 1] = json_text(fields[at]) .. ':' .. json_text(fields[at + 1])
    end
  end
  return #parts > 0 and '{' .. table.concat(parts, ',') .. '}' or ''
end

-- Returns kind, key, headers and payload of an entry that is not just `data`.
local function parts_of(fields)
  local found, others = {}, false
  for at = 1, #fields - 1, 2 do
    found[fields[at]] = fields[at + 1]
  end
  local key, headers, payload = found.key or '', found.headers, found.data
  if not payload or string.find(key, '\31', 1, true) or headers and not string.find(headers, '^{[^\31]*$') then
    return '1', '', '', json_of_fields(fields)
  end
  for name in pairs(found) do
    others = others or name ~= 'data' and name ~= 'key' and name ~= 'policy'
  end
  if not headers and others then
    headers = json_of_fields(fields, 'data')
  end
  return key ~= '' and found.policy == 'until_acked' and '2' or '1', key, headers or '', payload
end

-- Returns a function that makes a stored message of an entry's id and fields, its sequence and its deliveries.
local function message_maker()
  local stamp, time, format, match = '', '', string.format, string.match
  return function(id, fields, sequence, deliveries)
    local ms = match(id, '^%d+')
    if ms ~= stamp then
      stamp, time = ms, format('%012x', math.min(tonumber(ms), MAX_TIME))
    end
    local counts = deliveries and format('%03x0', deliveries) or '0000'
    if fields[1] == 'data' and #fields == 2 then
      return format('1%012x', sequence) .. time .. counts .. id .. '\31\31\31' .. fields[2]
    end
    local kind, key, headers, payload = parts_of(fields)
    local prefix = kind .. format('%012x', sequence) .. time .. counts
    return prefix .. id .. '\31' .. key .. '\31' .. headers .. '\31' .. payload
  end
end
