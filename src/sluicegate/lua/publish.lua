-- Make messages pending or delayed, except those whose deduplication key is held or for which there is no room.
-- Guarantee: each position of a batch enters the queue at most once, and its outcome is the same on every repeat within the allowed age.
-- KEYS:
--   1 pending
--   2 counters
--   3 wakeup
--   4 receipt        outcomes of this batch, where markers may not outlive its retries
--   5 returned       waits too, when there is a cap
--   6 delayed
--   7... markers     one per message, or none when the batch has no deduplication keys
-- ARGV:
--   1 batch          id of the batch; message i is "<batch>-<i>", from 0
--   2 age_ms         age of the batch at this attempt
--   3 oldest_ms      the greatest age at which a repeat is still known to be harmless
--   4 window_ms      life of a marker
--   5 receipt_ms     life of the receipt, 0 for none
--   6 kind           first byte of the entries; "2": markers are freed as messages end, and until then they live longer by a delay
--   7 delay_ms       from now until the messages fall due
--   8 due_ms         when they fall due, 0 to go by the delay; what is due already becomes pending
--   9 most           messages that may wait (pending, returned and delayed), 0 for any number
--  10 overload       "raise": all or nothing; "partial": the first that fit; "drop_oldest": the oldest pending ones make room
--  11... parts       per message: US key US headers US payload
-- Returns: {accepted, position, owner id, position, owner id, ...} with a pair per duplicate; when the cap refused or dropped some,
--   accepted is an array of its own: {accepted, dropped, refused positions...}; {-1} when the batch is too old; {-2, waiting} when the
--   cap refused it whole
-- Repeat: finds the receipt, or its own ids in the markers, and answers as the first time; it writes to a receipt that it finds, since WAIT
--   answers for the last write of its connection. A batch refused whole left nothing, and its repeat may be accepted.

--- @include clock
--- @include wakeup
--- @include numbers
--- @include marker_owners
--- @include enqueue
local pending, counters, wakeup, receipt, delayed = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[6]
local batch, receipt_ms, most, count, keyed = ARGV[1], tonumber(ARGV[5]), tonumber(ARGV[9]), #ARGV - 10, #KEYS > 6
local tokens = redis.call('LLEN', wakeup)
local waiting = redis.call('LLEN', pending)
redis.call('HLEN', counters)
if receipt_ms > 0 then
  local outcomes = redis.call('GET', receipt)
  if outcomes then
    redis.call('PEXPIRE', receipt, receipt_ms)
    local readable, reply = pcall(cjson.decode, outcomes)
    return readable and type(reply) == 'table' and reply[1] and reply or {-1} -- overwritten from outside: nobody knows any more
  end
end
if tonumber(ARGV[2]) > tonumber(ARGV[3]) then
  return {-1}
end
local room, kept = math.huge, 0 -- `kept`: what waits and is never dropped
if most > 0 then
  kept = redis.call('ZCARD', KEYS[5]) + redis.call('ZCARD', delayed)
  waiting = waiting + kept
  room = math.max(0, most - waiting)
end
local ms = math.floor(clock_us() / 1000)
local due, delay = tonumber(ARGV[8]), tonumber(ARGV[7])
if due == 0 and delay > 0 then
  due = ms + 1 + delay -- this millisecond has begun: nobody gets it early
end
due = due > ms and due

local owners, partial = marker_owners(KEYS, 7), ARGV[10] == 'partial'
local published = redis.call('HGET', counters, 'published')
local sequence = to_integer(published)
if sequence <= 0 and published and published ~= '0' then
--- @include newest_sequence
  sequence = math.max(to_integer(redis.call('HGET', counters, 'claimed')), newest_sequence_in(pending, KEYS[5]))
end
local head, stamp = ARGV[6] .. '%012x', string.format('%012x', ms) .. '0000'
local reply, entries, owned, refused, fresh, mine = {0}, {}, {}, {}, 0, 0
local KEYS, ARGV, call, format = KEYS, ARGV, redis.call, string.format -- locals: read for every message
for i = 1, count do
  local marker, id = KEYS[6 + i], format('%s-%d', batch, i - 1)
  local owner = owners[i] or (keyed and owned[marker])
  if not owner then
    if partial and fresh >= room then
      refused[#refused + 1] = i - 1
    else
      fresh = fresh + 1
      entries[fresh] = format(head, sequence + fresh) .. stamp .. id .. ARGV[10 + i]
      if keyed then
        owned[marker] = id
      end
    end
  elseif owner == id then
    mine = mine + 1
  else
    reply[#reply + 1] = i - 1
    reply[#reply + 1] = owner
  end
end
if fresh > room and (ARGV[10] ~= 'drop_oldest' or kept + fresh > most) then
  return {-2, waiting}
end

local dropped, window_ms = math.max(0, fresh - room), ARGV[4]
reply[1] = fresh + mine
if #refused + dropped > 0 then
  table.insert(refused, 1, dropped)
  table.insert(refused, 1, fresh + mine)
  reply[1] = refused
end
if fresh > 0 then
  local first_due = due and redis.call('ZRANGE', delayed, 0, 0, 'WITHSCORES')[2]
  if due and ARGV[6] == '2' then
    window_ms = format('%.0f', window_ms + due - ms)
  end
  redis.call('HSET', counters, 'published', format('%.0f', sequence + fresh))
  enqueue(pending, delayed, entries, due)
  for marker, id in pairs(owned) do
    call('PSETEX', marker, window_ms, id) -- as SET with PX, with less work
  end
  if dropped > 0 then
    redis.call('LTRIM', pending, 0, -dropped - 1)
--- @include count_up
    count_up(counters, 'dropped', dropped)
  end
  if not due or not first_due or due < tonumber(first_due) then
    wake_consumer(wakeup, tokens)
  end
end
if #reply > 1 then
--- @include count_up
  count_up(counters, 'duplicates', (#reply - 1) / 2)
end
if receipt_ms > 0 then
  redis.call('SET', receipt, cjson.encode(reply), 'PX', receipt_ms)
end
return reply
