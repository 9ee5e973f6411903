-- Try commands with arguments that have no effect, to find out which of them this user may not use.
-- Guarantee: the spare key exists during the script only, and nothing else is written.
-- KEYS:
--   1 spare                a key that nothing else uses
-- ARGV:
--   1... words             per command: how many words it has, and these; "@" stands for the spare key, "!" too, in a
--                        command that would write if that key did not hold a string
-- Returns: for each command the error that Redis answers, or "", or "?" if it could not be tried
-- Repeat: tries again.

local made = redis.pcall('SET', spare, '', 'PX', 1000)
local holds_string, reply, at = not made.err, {}, words_at
while at <= #ARGV do
  local count, command, tried = tonumber(ARGV[at]), {}, true
  for i = 1, count do
    local word = ARGV[at + i]
    tried = tried and (word ~= '!' or holds_string)
    command[i] = (word == '@' or word == '!') and spare or word
  end
  local answer = not tried and {err = '?'} or redis.pcall(unpack(command))
  reply[#reply + 1] = type(answer) == 'table' and answer.err or ''
  at = at + count + 1
end
redis.pcall('DEL', spare)
return reply
