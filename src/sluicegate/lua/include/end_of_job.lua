-- What an ack or a discard says about the job that it ends: its result, if it has one, or why it failed. The reason
-- "cancelled" of a discard is that of a worker that was asked to cancel the job.
local function end_of_job(verb, why)
  if verb == 'ack' then
    return {result = why ~= '\31\31' and why}
  end
  return {why = why, failed = string.match(why, '^[^\31]*') ~= 'cancelled'}
end
