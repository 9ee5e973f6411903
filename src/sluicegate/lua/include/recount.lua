-- While a repair recounts what is in flight, lease by lease in the order of the hashes of their names, a lease that it has counted already,
-- and one that was opened since it began, change its sum as they change the gauge.
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
