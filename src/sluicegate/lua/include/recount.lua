--- @include count_up
-- A repair recounts the messages in flight, lease by lease in the order of the hashes of their names. Meanwhile a lease
-- that it has counted already, or that was opened after it began, changes the repair's sum as it changes the gauge.
local function is_counted(recount, name, token)
  local began, upto = string.match(recount, '^%S+ (%d+) (%x*)$')
  local opened = string.match(token or '', ':(%d+)%-%d+$')
  return began and (tonumber(opened or 0) > tonumber(began) or redis.sha1hex(name) <= upto)
end

local function adjust_recount(counters, recount, name, token, by)
  if recount and by ~= 0 and is_counted(recount, name, token) then
    count_up(counters, 'recounted', by)
  end
end
