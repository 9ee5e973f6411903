-- Seat a reader of a consumer, or keep its seat: one reader of a consumer claims at a time, the one that was seated last.
-- Guarantee: a reader that lost its seat never gets it back, and no epoch is given twice, not even after the loss of all data.
-- KEYS:
--   1 leases
--   2 consumer       who reads for it, and in which epoch
-- ARGV:
--   1 nonce          of the reader
--   2 epoch          the reader's; 0: a new one, which fences all older ones
--   3 floor          leases of the epoch up to this number are settled; -1: only be seated
--   4 top            no lease above this number is claimed before the next call
--   5 life_ms        of the seat without a call
-- Returns: {1 when seated, epoch, floor and top as kept or -1 where unknown, "epoch:floor-top" of older epochs whose leases may still be
--   open, separated by blanks; none once a floor was given}; {0, epoch of the seat} when another reader was seated since, or a newer epoch
--   was given
-- Repeat: a reader that is seated finds itself so; one that was is refused, however late. Floor and top only grow.

--- @include clock
--- @include oom_guard
--- @include numbers
local consumer, nonce, epoch = KEYS[2], ARGV[1], tonumber(ARGV[2])
local MOST = 16 -- readers and older epochs that are remembered: more than are ever seated while a call may still be repeated

local function latest(list, more)
  local words = {}
  for word in string.gmatch(list .. ' ' .. more, '%S+') do
    words[#words + 1] = word
  end
  return table.concat(words, ' ', math.max(1, #words - MOST + 1))
end

oom_guard(KEYS[1])
local kept = redis.call('HMGET', consumer, 'epoch', 'reader', 'floor', 'top', 'left', 'readers')
local known, floor, top = to_integer(kept[1]), kept[3] and to_integer(kept[3]) or -1, kept[4] and to_integer(kept[4]) or -1
local left, readers, seated = kept[5] or '', kept[6] or '', kept[2] == nonce
if epoch > 0 and epoch < known or not seated and string.find(' ' .. readers .. ' ', ' ' .. nonce .. ' ', 1, true) then
  return {0, known}
end
if not seated then
  if epoch == 0 then
    if top > math.max(floor, 0) then
      left = latest(left, string.format('%.0f:%d-%d', known, math.max(floor, 0), top))
    end
    epoch, floor, top = math.max(known + 1, math.floor(clock_us() / 1000)), 0, 0
  elseif epoch > known then
    floor, top = -1, -1
  end
  known = epoch
  redis.call('HSET', consumer, 'epoch', string.format('%.0f', known), 'reader', nonce, 'floor', floor, 'top', top, 'left', left,
    'readers', latest(readers, nonce))
elseif tonumber(ARGV[3]) >= 0 then
  floor, top, left = math.max(floor, tonumber(ARGV[3])), math.max(top, tonumber(ARGV[4])), ''
  redis.call('HSET', consumer, 'floor', floor, 'top', top, 'left', left)
end
redis.call('PEXPIRE', consumer, ARGV[5])
return {1, known, floor, top, left}
