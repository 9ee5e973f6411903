--- @include unread, wakeup
-- Wake another consumer when a claim left something for it. A list that holds only foreign values that the claim just
-- moved (`moved`) wakes nobody: a consumer would meet them again at once. Returns whether something is left.
local function wake_after_claim(returned, pending, wakeup, tokens, excluded, moved, opening, unread)
  local more = is_claimable(returned, pending, unread)
  if moved > 0 then
    more = redis.call('EXISTS', returned) > 0 or redis.call('LLEN', pending) > moved
  end
  if more and (moved == 0 or opening) or #excluded > 0 then -- others must learn when excluded messages fall due
    wake_consumer(wakeup, tokens)
  elseif tokens > 0 and not more then
    redis.call('LREM', wakeup, 0, '2') -- nothing is left that a dead consumer could keep from others
  end
  return more
end
