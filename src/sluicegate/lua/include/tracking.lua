--- @include entry, tracked
-- A tally collects what a script moves, and writes it into the records of batches and jobs in one go. A script makes it
-- before its first write, because it reads the keys: one of another type stops the script unchanged.
local MAX_NAMED, MAX_NEWS = 256, 1000

local function new_tally(hash, ended, news, ms)
  --- @inside tracked_batches, tracked_jobs, tracking_cleanup
  redis.call('HLEN', hash)
  redis.call('ZCARD', ended)
  redis.call('XLEN', news)
  local self, batches, jobs = {}, {}, {}

  -- Count `count` messages of a batch from one state to another: waiting, delayed, in_flight, done, dead or gone.
  function self.count(batch, from, to, count)
    local changes = batches[batch] or {}
    changes[from], changes[to] = (changes[from] or 0) - count, (changes[to] or 0) + count
    batches[batch] = changes
  end

  -- Note that a message moved. `detail` says more about a job: see tracked_jobs.lua. From a state to itself is a
  -- takeover.
  function self.moved(entry, from, to, detail)
    local kind = string.byte(entry) or 0
    if kind > LAST_UNTRACKED and is_entry(entry) then
      local id = id_of(entry)
      local batch = from ~= to and batch_of(id)
      if batch then
        self.count(batch, from, to, 1)
      end
      if kind > 54 then -- 7 or 8
        jobs[#jobs + 1] = {id = id, to = to, entry = entry, detail = detail}
      end
    end
  end

  -- As `moved`, from waiting into a lease, for entries that are known to be some. Most messages of batches pass here.
  function self.took(entries, detail)
    local counts, match, byte = {}, string.match, string.byte
    for i = 1, #entries do
      local kind = byte(entries[i])
      if kind > 54 then
        self.moved(entries[i], 'waiting', 'in_flight', detail)
      elseif kind > LAST_UNTRACKED then
        local batch = match(entries[i], '^([^:\31]+):', 30)
        if batch then
          counts[batch] = (counts[batch] or 0) + 1
        end
      end
    end
    for batch, count in pairs(counts) do
      self.count(batch, 'waiting', 'in_flight', count)
    end
  end

  -- As `moved`, for all of these entries.
  function self.moved_all(entries, from, to, detail)
    for i = 1, #entries do
      self.moved(entries[i], from, to, detail)
    end
  end

  -- Note that dead messages were dropped: their batches lose them, and jobs stay failed.
  function self.dropped_dead(ids)
    for i = 1, #ids do
      local batch = batch_of(ids[i])
      if batch then
        self.count(batch, 'dead', 'gone', 1)
      end
    end
  end

  function self.has_jobs()
    return #jobs > 0
  end

  -- Messages per batch that are in flight by now, as a lease keeps them for its whole ack.
  function self.taken()
    local parts = {}
    for batch, changes in pairs(batches) do
      parts[#parts + 1], parts[#parts + 2] = batch, string.format('%d', changes.in_flight or 0)
    end
    return #jobs == 0 and #parts <= 128 and table.concat(parts, '\31')
  end

  -- Write it all. What has ended is announced, and as much of what ended long ago is removed.
  function self.write()
    local over = {}
    for batch, changes in pairs(batches) do
      write_batch(hash, ended, batch, changes, ms, over)
    end
    if #jobs > 0 then
      write_jobs(hash, ended, jobs, ms, over)
    end
    if #over > 0 then
      local number = redis.call('HINCRBY', hash, 'news', 1)
      local names = #over > MAX_NAMED and '*' or table.concat(over, '\31')
      redis.call('XADD', news, 'MAXLEN', '~', MAX_NEWS, '*', 'n', number, 'ended', names)
      remove_outdated(hash, ended, ms, #over + 16)
    end
    batches, jobs = {}, {}
  end

  return self
end
