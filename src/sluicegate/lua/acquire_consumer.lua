-- Acquire a consumer for a reader, or keep it: only the reader that acquired a consumer last claims for it.
-- Guarantee: a reader that lost its consumer never gets it back, and no epoch is given twice, not even after the loss
--   of all data.
-- KEYS:
--   1 leases
--   2 consumer             who reads for it, and in which epoch
-- ARGV:
--   1 nonce                of the reader
--   2 epoch                the reader's; 0: a new one, which fences all older ones
--   3 floor                leases of the epoch up to this number are settled; -1: only acquire
--   4 top                  no lease above this number is claimed before the next call
--   5 life_ms              lifetime of the record without a call
-- Returns: {1 when acquired, epoch, floor and top as kept or -1 where unknown, "epoch:floor-top" of older epochs whose
--   leases may still be open, separated by blanks; none once a floor was given}; {0, epoch of the consumer} when
--   another reader acquired it since, or a newer epoch was given
-- Repeat: a reader that still has the consumer gets the same answer; one that had it is refused, however late. Floor
--   and top only grow.

--- @include clock, numbers, oom_guard
local MAX_REMEMBERED = 16 -- readers and older epochs: more than there ever are while a call may still be repeated
epoch = tonumber(epoch)

local function latest(list, more)
  local words = {}
  for word in string.gmatch(list .. ' ' .. more, '%S+') do
    words[#words + 1] = word
  end
  return table.concat(words, ' ', math.max(1, #words - MAX_REMEMBERED + 1))
end

oom_guard(leases)
local kept = redis.call('HMGET', consumer, 'epoch', 'reader', 'floor', 'top', 'left', 'readers')
local known = to_integer(kept[1])
local low, high = kept[3] and to_integer(kept[3]) or -1, kept[4] and to_integer(kept[4]) or -1
local left, readers, acquired = kept[5] or '', kept[6] or '', kept[2] == nonce
local was_reader = string.find(' ' .. readers .. ' ', ' ' .. nonce .. ' ', 1, true)
if epoch > 0 and epoch < known or not acquired and was_reader then
  return {0, known}
end
if not acquired then
  if epoch == 0 then
    if high > math.max(low, 0) then
      left = latest(left, string.format('%.0f:%d-%d', known, math.max(low, 0), high))
    end
    epoch, low, high = math.max(known + 1, math.floor(clock_us() / 1000)), 0, 0
  elseif epoch > known then
    low, high = -1, -1
  end
  known = epoch
  redis.call('HSET', consumer, 'epoch', string.format('%.0f', known), 'reader', nonce, 'floor', low, 'top', high,
    'left', left, 'readers', latest(readers, nonce))
elseif tonumber(floor) >= 0 then
  low, high, left = math.max(low, tonumber(floor)), math.max(high, tonumber(top)), ''
  redis.call('HSET', consumer, 'floor', low, 'top', high, 'left', left)
end
redis.call('PEXPIRE', consumer, life_ms)
return {1, known, low, high, left}
