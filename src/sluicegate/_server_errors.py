"""This module holds the errors of `sluicegate.errors` that are errors of redis-py too.

Only they need redis-py, whose import costs more than everything else: a DAG file or a command line that names any other
error does not pay for it.
"""

from __future__ import annotations

from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import RedisError, ResponseError

from sluicegate.errors import NotDurableError, RedisMessageQueueError

__all__ = [
    "DurabilityAccessError",
    "LuaScriptError",
    "RedisAccessError",
    "RedisMemoryError",
    "RedisRefusedError",
    "RedisUnavailableError",
    "RetryBudgetExhaustedError",
    "WrongKeyTypeError",
]


class RedisUnavailableError(RedisMessageQueueError, RedisConnectionError):
    """Redis could not be reached or used. The text names the server, never the password.

    No call took effect, unless a subclass states otherwise.
    """


class RedisAccessError(RedisMessageQueueError, RedisError):
    """Redis refused the credentials, or its ACL rules forbid this user a command or key."""


class RedisRefusedError(RedisUnavailableError, ResponseError):
    """Redis refused the call for the whole retry budget; nothing was changed. The text quotes Redis.

    Redis cannot save its data (`MISCONF`), is a replica, is loading, is busy, lacks replicas or cluster slots, or its
    quota is exhausted. The same call may succeed later.
    """


class RetryBudgetExhaustedError(RedisUnavailableError):
    """Redis stayed unreachable for the whole retry budget; the call may or may not have taken effect."""


class RedisMemoryError(RedisMessageQueueError, ResponseError):
    """Redis is at `maxmemory` and refused a publish whole; claims, acks and heartbeats continue to work."""


class WrongKeyTypeError(RedisMessageQueueError, ResponseError):
    """A key of the queue holds a value of another type, because another program writes under the queue's prefix."""


class LuaScriptError(RedisMessageQueueError, ResponseError):
    """Redis refused one of our scripts for a reason that no other error covers; the text is that of Redis."""


class DurabilityAccessError(NotDurableError, RedisAccessError):
    """Messages were published, but this user has no permission to confirm their durability."""


for _name in __all__:
    # Where callers import them from, and what a traceback and a pickled error name.
    globals()[_name].__module__ = "sluicegate.errors"
