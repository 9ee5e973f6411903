-- The outcomes of a publish in its receipt, whose lifetime starts again; nil without a receipt. A receipt that was
-- overwritten from outside leaves the outcomes unknown, which counts as too old.
local function stored_outcomes(receipt, receipt_ms)
  local outcomes = redis.call('GET', receipt)
  if outcomes then
    redis.call('PEXPIRE', receipt, receipt_ms)
    local readable, reply = pcall(cjson.decode, outcomes)
    return readable and type(reply) == 'table' and reply[1] and reply or {-1}
  end
end
