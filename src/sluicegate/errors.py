"""Every exception of Sluicegate: one per decision that a caller can take.

Messages name the queue, the key or the field, say what was wrong and how to put it right, and never carry
a password or a payload.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from redis.exceptions import RedisError

if TYPE_CHECKING:
    from sluicegate.core.call import Call
    from sluicegate.core.replies import Published

__all__ = [
    "AlreadySettledError",
    "ConfigurationError",
    "DrainFailedError",
    "EmbeddedServerError",
    "EmbeddedServerNotFoundError",
    "LeaseLostError",
    "MalformedStoredMessageError",
    "PublishUnknownError",
    "QueueDrainedError",
    "RedisAccessError",
    "RedisMemoryError",
    "RedisMessageQueueError",
    "RedisUnavailableError",
    "RetryBudgetExhaustedError",
    "WrongKeyTypeError",
]


class RedisMessageQueueError(Exception):
    """Anything that Sluicegate raises on its own account."""


class ConfigurationError(RedisMessageQueueError, ValueError):
    """An option, a URL, a key function or a name cannot work as given; nothing was sent to Redis."""


class RedisUnavailableError(RedisMessageQueueError, RedisError):
    """Redis could not be reached; names the server, never the password."""


class RedisAccessError(RedisMessageQueueError, RedisError):
    """Redis was reached, but refused the credentials, or its rules forbid this user a command or key."""


class RetryBudgetExhaustedError(RedisUnavailableError):
    """Redis stayed unreachable for the whole retry budget; the call may or may not have taken effect."""


class RedisMemoryError(RedisMessageQueueError, RedisError):
    """Redis is at `maxmemory` and refused a publish whole; claims, acks and heartbeats go on."""


class WrongKeyTypeError(RedisMessageQueueError, RedisError):
    """A key of the queue holds a value of another type; something else writes under the queue's prefix."""


class MalformedStoredMessageError(RedisMessageQueueError, ValueError):
    """A stored value is not a Sluicegate entry."""


class PublishUnknownError(RedisMessageQueueError):
    """A publish was sent, and whether it took effect can no longer be known without the risk of a duplicate.

    Attributes:
        ids: the message ids of the batch, by position.
        calls: the prepared calls of the batch, for `RedisMessageQueue.publish_again`; empty when it is too late.
        born: when the batch was made, by the gateway's clock.
    """

    def __init__(
        self, message: str, *, ids: Sequence[str], calls: Sequence[Call[Published]] = (), born: float = 0.0
    ) -> None:
        super().__init__(message)
        self.ids = tuple(ids)
        self.calls = tuple(calls)
        self.born = born


class LeaseLostError(RedisMessageQueueError):
    """The lease is no longer held, or some of its messages were settled by another hand.

    Attributes:
        lease_id: the lease.
        lost: slots whose verdict did not take effect; their messages are or will be delivered again.
        settled: slots whose verdict did take effect.
    """

    def __init__(self, message: str, *, lease_id: str, lost: Sequence[int], settled: Sequence[int] = ()) -> None:
        super().__init__(message)
        self.lease_id = lease_id
        self.lost = tuple(lost)
        self.settled = tuple(settled)


class AlreadySettledError(RedisMessageQueueError, ValueError):
    """A message of a lease already has another verdict, or is not of this lease."""


class QueueDrainedError(RedisMessageQueueError):
    """This queue object was closed (drained); it no longer publishes."""


class DrainFailedError(RedisMessageQueueError):
    """Some chunks of a drain failed in their handler; the others stay acked.

    Attributes:
        summary: what every partition did, with the failures listed.
    """

    def __init__(self, message: str, *, summary: object) -> None:
        super().__init__(message)
        self.summary = summary


class EmbeddedServerError(RedisMessageQueueError):
    """The embedded Redis server could not be started or joined."""


class EmbeddedServerNotFoundError(EmbeddedServerError):
    """No Redis server program was found on this machine."""
