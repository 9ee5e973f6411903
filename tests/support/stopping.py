"""Scripts that stop before one of their writes, as a server that loses its power or a right stops them."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import redis

from sluicegate.core.call import Call
from tests.support.core_calls import Core

WRITES = (
    "DEL HDEL HINCRBY HSET LPUSH LREM LSET LTRIM PEXPIRE PEXPIREAT PSETEX RPOP RPUSH SADD SET UNLINK XADD ZADD ZREM "
    "ZREMRANGEBYRANK"
)
_HEAD = """local writes_left = %d
local redis = setmetatable({call = function(name, ...)
  if string.find(' %s ', ' ' .. name .. ' ', 1, true) then
    writes_left = writes_left - 1
    if writes_left < 0 then error('stopped here') end
  end
  return redis.call(name, ...)
end}, {__index = redis})
"""


def stopping(call: Call[Any], writes: int) -> Call[Any]:
    """Return the call with a script that stops after so many writes."""
    text = (_HEAD % (writes, WRITES)).encode() + call.script.text
    sha = hashlib.sha1(text).hexdigest().encode()  # noqa: S324
    return replace(call, script=replace(call.script, text=text, sha=sha))


def is_stopped(core: Core, call: Call[Any], writes: int) -> bool:
    """Execute a call that stops after so many writes; return whether it has stopped, because it makes more of them."""
    try:
        core.do_once(stopping(call, writes))
    except redis.exceptions.ResponseError as error:
        if "stopped here" not in str(error):
            raise
        return True
    return False


def numbers() -> Iterator[int]:
    """Yield 0, 1, 2 and so on, but not for ever."""
    yield from range(200)
    raise AssertionError("the script never runs to its end")
