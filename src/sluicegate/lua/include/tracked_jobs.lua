--- @include entry, numbers
-- The state of a job: "status US attempts US claimed_ms US ended_ms US lease US worker US token hash US error type US
-- error text". `detail` of a move may have: `lease`, `worker`, `token` and `begun`, the deliveries begun with this one
-- but not counted in the entry, when a lease takes it; `why`, "reason US error type US error text", when it failed;
-- `result`, when it is done; `failed`, when it is gone without having been cancelled.
local STATUSES = {
  waiting = 'waiting', delayed = 'delayed', in_flight = 'running', done = 'completed', dead = 'failed',
  gone = 'cancelled',
}
local DAY_MS = 86400000

local function state_of(raw)
  local parts = {}
  for part in string.gmatch((raw or '') .. '\31', '([^\31]*)\31') do
    parts[#parts + 1] = part
  end
  return {
    attempts = to_integer(parts[2]), claimed = to_integer(parts[3]), ended = to_integer(parts[4]),
    lease = parts[5] or '', worker = parts[6] or '', token = parts[7] or '', kind = parts[8] or '',
    text = table.concat(parts, ' ', 9),
  }
end

local function pack_state(status, state)
  return string.format('%s\31%d\31%.0f\31%.0f\31%s\31%s\31%s\31%s\31', status, state.attempts, state.claimed,
    state.ended, state.lease, state.worker, state.token, state.kind) .. state.text
end

-- Change one state as a job's move says, and return its status.
local function change_state(state, job, ms)
  local detail, status = job.detail or {}, STATUSES[job.to]
  if job.to == 'gone' and detail.failed then
    status = 'failed'
  end
  if job.to == 'in_flight' then
    state.claimed, state.lease = ms, detail.lease
    state.worker = string.gsub(detail.worker, '\31', ' ')
    state.token = string.sub(redis.sha1hex(detail.token), 1, 16)
  end
  if job.to ~= 'done' and job.to ~= 'gone' then
    state.attempts = deliveries_of(job.entry) + (detail.begun or 0)
  end
  if detail.why and detail.why ~= '\31\31' then
    local kind, text = string.match(detail.why, '^[^\31]*\31([^\31]*)\31(.*)$')
    if kind and kind .. text ~= '' then
      state.kind, state.text = kind, text
    elseif kind then
      state.kind, state.text = '', string.match(detail.why, '^[^\31]*')
    end
  end
  state.ended = (job.to == 'done' or job.to == 'dead' or job.to == 'gone') and ms or 0
  return status
end

local function write_jobs(hash, ended, jobs, ms, over)
  local life = to_integer(redis.call('HGET', hash, 'ttl_ms'))
  life = life > 0 and life or DAY_MS
  for first = 1, #jobs, 1000 do
    local names, fields, lives, again, dropped = {}, {}, {}, {}, {}
    for i = first, math.min(first + 999, #jobs) do
      names[#names + 1] = 's:' .. jobs[i].id
    end
    local found = redis.call('HMGET', hash, unpack(names))
    for i = 1, #names do
      local job = jobs[first + i - 1]
      local state, member = state_of(found[i]), 'j:' .. job.id
      local was_over = state.ended > 0
      local status = change_state(state, job, ms)
      fields[#fields + 1], fields[#fields + 2] = names[i], pack_state(status, state)
      if job.detail and job.detail.result then
        fields[#fields + 1], fields[#fields + 2] = 'r:' .. job.id, job.detail.result
      end
      if state.ended > 0 then
        lives[#lives + 1], lives[#lives + 2] = ms + life, member
        over[#over + 1] = member
      elseif was_over then -- redriven
        again[#again + 1] = member
        for _, field in ipairs({'r:', 'p:', 'x:'}) do
          dropped[#dropped + 1] = field .. job.id
        end
      end
    end
    redis.call('HSET', hash, unpack(fields))
    if #lives > 0 then
      redis.call('ZADD', ended, unpack(lives))
    end
    if #again > 0 then
      redis.call('HDEL', hash, unpack(dropped))
      redis.call('ZREM', ended, unpack(again))
    end
  end
end
