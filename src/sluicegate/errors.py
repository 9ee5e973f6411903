"""Every exception of Sluicegate: one per decision that a caller can take.

Messages name the queue, the key or the field, say what was wrong and how to put it right, and never carry
a password or a payload.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, TypedDict

from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import RedisError, ResponseError

if TYPE_CHECKING:
    from typing import Self, Unpack

    from sluicegate.core.call import Call
    from sluicegate.core.replies import Published
    from sluicegate.core.values import Batch
    from sluicegate.report import PublishReport

__all__ = [
    "AlreadySettledError",
    "CleanupFailedError",
    "ConfigurationError",
    "DrainFailedError",
    "DurabilityAccessError",
    "EmbeddedServerError",
    "EmbeddedServerNotFoundError",
    "EvictionPolicyError",
    "GatewayContractError",
    "LeaseLostError",
    "LuaScriptError",
    "MalformedStoredMessageError",
    "NotDurableError",
    "OptionTypeError",
    "PayloadTooDeepError",
    "PayloadTooLargeError",
    "PublishUnknownError",
    "QueueBackpressureError",
    "QueueDrainedError",
    "RedisAccessError",
    "RedisMemoryError",
    "RedisMessageQueueError",
    "RedisRefusedError",
    "RedisUnavailableError",
    "RetryBudgetExhaustedError",
    "UnsafeFolderError",
    "WrongKeyTypeError",
]


class _Context(TypedDict, total=False):
    """Where an error happened; see the attributes of `RedisMessageQueueError`."""

    queue: str | None
    operation: str | None
    message_id: str | None
    position: int | None


class RedisMessageQueueError(Exception):
    """Anything that Sluicegate raises on its own account. Travels between processes with its attributes.

    Attributes:
        queue: name of the queue; None, like all of these, where it is not known.
        operation: what was being done, by its verb, such as `publish`.
        message_id: of the one message that it is about.
        position: of that message among those that the caller publishes, from 0.
    """

    queue: str | None = None
    operation: str | None = None
    message_id: str | None = None
    position: int | None = None

    def __init__(
        self,
        *args: object,
        queue: str | None = None,
        operation: str | None = None,
        message_id: str | None = None,
        position: int | None = None,
    ) -> None:
        super().__init__(*args)
        self.locate(queue=queue, operation=operation, message_id=message_id, position=position)

    def locate(self, **known: Unpack[_Context]) -> Self:
        """Add what is known of where it happened, wherever nothing closer to it knew more; returns the error."""
        for name, value in known.items():
            if value is not None and getattr(self, name) is None:
                setattr(self, name, value)
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild, (type(self), self.args, self.__dict__)


class ConfigurationError(RedisMessageQueueError, ValueError):
    """An option, a URL, a key function or a name cannot work as given; nothing was sent to Redis."""


class EvictionPolicyError(ConfigurationError):
    """The queue has `require_noeviction=True`, and its server may evict its keys; nothing was published.

    Attributes:
        policy: the server's `maxmemory-policy`, None where it does not tell.
    """

    def __init__(self, message: str, *, policy: str | None = None) -> None:
        super().__init__(message)
        self.policy = policy


class OptionTypeError(ConfigurationError, TypeError):
    """An option or argument has the wrong type; nothing was sent to Redis."""


class GatewayContractError(RedisMessageQueueError, TypeError):
    """A gateway of the user's own lacks a part of the protocol, or answers something else than it promises."""


class RedisUnavailableError(RedisMessageQueueError, RedisConnectionError):
    """Redis could not be reached or used; names the server, never the password.

    Nothing was sent that could have taken effect, unless a subclass says otherwise.
    """


class RedisAccessError(RedisMessageQueueError, RedisError):
    """Redis was reached, but refused the credentials, or its rules forbid this user a command or key."""


class RedisRefusedError(RedisUnavailableError, ResponseError):
    """Redis answered for the whole retry budget that it takes no writes now, and said why; nothing was changed.

    It could not save its data (`MISCONF`), is a replica, is loading, is busy, lacks replicas, a cluster's slots or the
    rest of a quota. The same call may succeed later.
    """


class RetryBudgetExhaustedError(RedisUnavailableError):
    """Redis stayed unreachable for the whole retry budget; the call may or may not have taken effect."""


class RedisMemoryError(RedisMessageQueueError, ResponseError):
    """Redis is at `maxmemory` and refused a publish whole; claims, acks and heartbeats go on."""


class WrongKeyTypeError(RedisMessageQueueError, ResponseError):
    """A key of the queue holds a value of another type; something else writes under the queue's prefix."""


class LuaScriptError(RedisMessageQueueError, ResponseError):
    """Redis refused one of our scripts for a reason that has no error of its own here; the text is Redis's."""


class MalformedStoredMessageError(RedisMessageQueueError, ValueError):
    """A stored value is not a Sluicegate entry."""


class PayloadTooLargeError(RedisMessageQueueError, ValueError):
    """A payload exceeds `max_payload_bytes`, or a message what the server accepts; nothing of its call was stored.

    Attributes:
        size: in bytes: of the payload as it would be stored, or of the message as it was sent.
        limit: what is allowed; 0 when the server does not tell.
        position: of the message among those that the caller publishes, from 0; None where it is not known.
    """

    def __init__(self, message: str, *, size: int, limit: int, position: int | None = None) -> None:
        super().__init__(message, position=position)
        self.size = size
        self.limit = limit


class PayloadTooDeepError(RedisMessageQueueError, ValueError):
    """A payload nests dicts and lists deeper than `max_payload_depth`; nothing was sent.

    Attributes:
        limit: what is allowed.
    """

    def __init__(self, message: str, *, limit: int) -> None:
        super().__init__(message)
        self.limit = limit


class QueueBackpressureError(RedisMessageQueueError):
    """The queue is at `max_pending_length`, and no room came in the time that was given; nothing was stored.

    Attributes:
        limit: `max_pending_length`.
        waiting: messages that waited there: pending, returned and delayed.
        count: messages of the call that was refused.
        remediation: what to do about it.
    """

    def __init__(
        self, message: str, *, queue: str = "", limit: int = 0, waiting: int = 0, count: int = 0, remediation: str = ""
    ) -> None:
        super().__init__(f"{message}; {remediation}" if remediation else message, queue=queue)
        self.limit = limit
        self.waiting = waiting
        self.count = count
        self.remediation = remediation


class NotDurableError(RedisMessageQueueError):
    """Messages were published, but the durability that was asked for was not confirmed in time.

    Attributes:
        ids: the message ids of the call, by position.
        published: outcomes of the call, as decoded.
        report: outcomes of the call as a `PublishReport`; a retry under the same deduplication key would be refused as
            a duplicate.
    """

    def __init__(
        self,
        message: str,
        *,
        ids: Sequence[str] = (),
        published: Published | None = None,
        report: PublishReport | None = None,
    ) -> None:
        super().__init__(message)
        self.ids = tuple(ids)
        self.published = published
        self.report = report


class DurabilityAccessError(NotDurableError, RedisAccessError):
    """Messages were published, but this user may not ask whether they are as durable as was wanted."""


class PublishUnknownError(RedisMessageQueueError):
    """A publish was sent, and whether it took effect can no longer be known without the risk of a duplicate.

    Attributes:
        ids: the message ids of the batch, by position.
        calls: the prepared calls of the batch, for `RedisMessageQueue.publish_again`; empty when it is too late, and
            in another process, whose clock is another one.
        born: when the batch was made, by the gateway's clock.
        batch: what those calls publish, None when there are none.
    """

    def __init__(
        self,
        message: str,
        *,
        ids: Sequence[str],
        calls: Sequence[Call[Published]] = (),
        born: float = 0.0,
        batch: Batch | None = None,
    ) -> None:
        super().__init__(message)
        self.ids = tuple(ids)
        self.calls = tuple(calls)
        self.born = born
        self.batch = batch

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild, (type(self), self.args, {**self.__dict__, "calls": (), "batch": None})


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


class CleanupFailedError(RedisMessageQueueError):
    """The handler finished, but that could not be recorded; its message will be delivered again.

    The reason is the `__cause__`.
    """


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


class UnsafeFolderError(EmbeddedServerError, ConfigurationError):
    """Another user owns the folder of an embedded server, can write to it, or can replace it; nothing was started."""


def _rebuild(kind: type[RedisMessageQueueError], args: tuple[Any, ...], attributes: dict[str, Any]) -> object:
    """An error from its parts, whatever its constructor asks for: one that cannot be unpickled would break a pool."""
    error = kind.__new__(kind, *args)
    error.args = args
    error.__dict__.update(attributes)
    return error
