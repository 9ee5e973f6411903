-- What is known of each group that this library made or named, by the group's name: the start that was asked for, the
-- position at which the group started, when it was made in µs, and the lifetime of a temporary group in ms and the
-- time at which it expires; 0 and 0 for a group that lasts.
local function read_group_record(value)
  local start, position, made, life, expiry = string.match(
    value or '', '^([^\31]*)\31([^\31]*)\31(%d+)\31(%d+)\31(%d+)$'
  )
  return made and {
    start = start, position = position, made = made, life_ms = tonumber(life), expires_ms = tonumber(expiry),
  }
end

local function write_group_record(groups, name, record)
  redis.call('HSET', groups, name, table.concat({
    record.start, record.position, record.made, string.format('%.0f', record.life_ms),
    string.format('%.0f', record.expires_ms),
  }, '\31'))
end

-- All records, by the name of the group.
local function read_group_records(groups)
  local values, records = redis.call('HGETALL', groups), {}
  for at = 1, #values, 2 do
    records[values[at]] = read_group_record(values[at + 1])
  end
  return records
end

-- The groups of a stream as Redis knows them, each with its fields by name.
local function native_groups(stream)
  local found = redis.call('EXISTS', stream) == 1 and redis.call('XINFO', 'GROUPS', stream) or {}
  for i = 1, #found do
    local fields = {}
    for at = 1, #found[i], 2 do
      fields[found[i][at]] = found[i][at + 1]
    end
    found[i] = fields
  end
  return found
end

local function native_group(stream, name)
  local all = native_groups(stream)
  for i = 1, #all do
    if all[i].name == name then
      return all[i]
    end
  end
end
