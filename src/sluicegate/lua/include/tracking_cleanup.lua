--- @include numbers
-- Ended batches and jobs are removed when their time is over, and jobs when there are more of them than are kept. Each
-- script that ends some removes as many and a few more, so that the work of a call is bounded and none piles up.
local MAX_ENDED, MAX_RECEIPTS = 10000, 1000

-- Returns whether nothing is left of it; a batch of very many calls is removed in steps.
local function remove_batch_record(hash, batch)
  local prefix = 'b:' .. batch .. ':'
  local calls = to_integer(redis.call('HGET', hash, prefix .. 'calls'))
  local names = {}
  for call = math.max(0, calls - MAX_RECEIPTS), calls - 1 do
    names[#names + 1] = string.format('c:%s:%d', batch, call)
  end
  if #names > 0 then
    redis.call('HDEL', hash, unpack(names))
  end
  if calls > MAX_RECEIPTS then
    redis.call('HSET', hash, prefix .. 'calls', calls - MAX_RECEIPTS)
    return false
  end
  redis.call('HDEL', hash, prefix .. 'total', prefix .. 'delayed', prefix .. 'in_flight', prefix .. 'done',
    prefix .. 'dead', prefix .. 'gone', prefix .. 'sealed', prefix .. 'ended', prefix .. 'ttl_ms', prefix .. 'calls')
  return true
end

local function remove_ended(hash, ended, members)
  local fields, gone = {}, {}
  for i = 1, #members do
    local letter, name = string.match(members[i], '^(%a):(.+)$')
    if letter == 'j' then
      for _, field in ipairs({'j:', 's:', 'r:', 'p:', 'x:'}) do
        fields[#fields + 1] = field .. name
      end
      gone[#gone + 1] = members[i]
    elseif letter ~= 'b' or remove_batch_record(hash, name) then
      gone[#gone + 1] = members[i]
    end
  end
  for first = 1, #fields, 1000 do
    redis.call('HDEL', hash, unpack(fields, first, math.min(first + 999, #fields)))
  end
  for first = 1, #gone, 1000 do
    redis.call('ZREM', ended, unpack(gone, first, math.min(first + 999, #gone)))
  end
end

local function remove_outdated(hash, ended, ms, limit)
  remove_ended(hash, ended, redis.call('ZRANGEBYSCORE', ended, '-inf', ms, 'LIMIT', 0, limit))
  local cap = to_integer(redis.call('HGET', hash, 'cap') or MAX_ENDED) -- 0: all are kept
  local beyond = cap > 0 and redis.call('ZCARD', ended) - cap or 0
  if beyond > 0 then
    local oldest, jobs = redis.call('ZRANGE', ended, 0, math.min(beyond, limit) - 1), {}
    for i = 1, #oldest do
      if string.sub(oldest[i], 1, 2) == 'j:' then
        jobs[#jobs + 1] = oldest[i]
      end
    end
    remove_ended(hash, ended, jobs)
  end
end
