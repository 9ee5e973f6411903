-- Report which of the named batches and jobs have ended, and where the notifications stand.
-- Guarantee: reads only. What ends later is in a later notification than the one that is named.
-- KEYS:
--   1 tracking_ended       batches and jobs that ended, by the time when they are removed
--   2 tracking_news        the latest that ended
-- ARGV:
--   1... members           as they stand in `tracking_ended`
-- Returns: {id of the newest notification, its number; both "0" for none; members that have ended...}
-- Repeat: reads again.

local newest = redis.call('XREVRANGE', tracking_news, '+', '-', 'COUNT', 1)[1]
local reply = {newest and newest[1] or '0', newest and newest[2][2] or '0'}
redis.call('ZCARD', tracking_ended)
for i = members_at, #ARGV do
  if redis.call('ZSCORE', tracking_ended, ARGV[i]) then
    reply[#reply + 1] = ARGV[i]
  end
end
return reply
