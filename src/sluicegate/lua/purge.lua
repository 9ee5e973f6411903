-- Delete named messages of one state with their deduplication markers, or a whole history.
-- Guarantee: only what is named and still in that state goes, and a marker only when it belongs to a message that goes.
-- KEYS:
--   1 source         a list, or a zset of entries or of dead ids
--   2 dead_records   the dead records by id
--   3 leases
--   4 counters
--   5 receipt        the answer of this purge's last step
--   6... markers     of the named messages that have a deduplication key
-- ARGV:
--   1 kind           "oldest": a list, from its right end; "zset"; "dead"; "history"
--   2 step           number of this step
--   3 receipt_ms     life of the receipt
--   4... named       per message: its id, or its entry in a zset; number of its marker, 0 for none
-- Returns: {messages deleted}
-- Repeat: answered from the receipt.

--- @include oom_guard
--- @include count_up
--- @include entry
--- @include marker_owners
--- @include receipt
--- @include named_values
local source, records, receipt, kind, step = KEYS[1], KEYS[2], KEYS[5], ARGV[1], tonumber(ARGV[2])
oom_guard(KEYS[3])
local done = stored_answer(receipt, step)
if done then
  return done
end
redis.call('HLEN', KEYS[4])
redis.call('HLEN', records)
if kind == 'history' then
  local count = redis.call('LLEN', source)
  redis.call('UNLINK', source)
  if count > 0 then
    count_up(KEYS[4], 'purged', count)
  end
  return store_answer(receipt, step, ARGV[3], {count})
end

local owners, named, gone = marker_owners(KEYS, 6), read_named_values(ARGV, 4), {}

-- Those named are at the right end, but for what a claim has taken meanwhile: whatever joined since is to the left of them.
local function find_at_tail()
  local by_name, found, chunk = {}, 0, 1
  for i = 1, #named do
    by_name[named[i].name] = named[i]
  end
  while found < #named do
    chunk = math.min(chunk, #named - found)
    local batch = redis.call('LRANGE', source, -(found + chunk), -(found + 1))
    for i = #batch, 1, -1 do
      local one = by_name[name_of(batch[i])]
      if not one then
        return
      end
      found = found + 1
      gone[found] = one
    end
    if #batch < chunk then
      return
    end
    chunk = math.min(chunk * 4, 1000)
  end
end

if kind == 'oldest' then
  redis.call('LLEN', source)
  find_at_tail()
else
  redis.call('ZCARD', source)
  for i = 1, #named do
    if redis.call('ZSCORE', source, named[i].name) then
      gone[#gone + 1] = named[i]
    end
  end
end

local members = {}
for i = 1, #gone do
  local name = gone[i].name
  members[i] = name
  free_marker(KEYS, 6, owners, gone[i].marker, kind == 'zset' and is_entry(name) and id_of(name) or name)
end
if #gone > 0 then
  if kind == 'oldest' then
    redis.call('LTRIM', source, 0, -(#gone + 1))
  elseif kind == 'dead' then
    drop_dead(source, records, members)
  else
    drop_members(source, members)
  end
  count_up(KEYS[4], 'purged', #gone)
end
return store_answer(receipt, step, ARGV[3], {#gone})
