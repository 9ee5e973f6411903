"""This module defines every exception of Sluicegate, one per decision that a caller can take.

Messages name the queue, the key or the field, state what was wrong and how to correct it, and never contain a password
or a payload. Each error has the address of its entry in the documentation, which is shown below its traceback.
"""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, TypedDict

if TYPE_CHECKING:
    from typing import Self, Unpack

    from sluicegate._server_errors import (
        DurabilityAccessError,
        LuaScriptError,
        RedisAccessError,
        RedisMemoryError,
        RedisRefusedError,
        RedisUnavailableError,
        RetryBudgetExhaustedError,
        WrongKeyTypeError,
    )
    from sluicegate.core.call import Call
    from sluicegate.report import PublishReport

__all__ = [
    "AlreadySettledError",
    "BatchChangedError",
    "CleanupFailedError",
    "ConfigurationError",
    "DrainFailedError",
    "DurabilityAccessError",
    "EmbeddedServerError",
    "EmbeddedServerNotFoundError",
    "EvictionPolicyError",
    "GatewayContractError",
    "GroupNotFoundError",
    "HandlerFailedError",
    "InvalidPayloadError",
    "JobCancelledError",
    "JobFailedError",
    "JobNotFoundError",
    "LeaseEndedError",
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
    "UnhandledTypeError",
    "UnsafeFolderError",
    "WrongKeyTypeError",
]


# Has an entry for each class of these packages, under its name.
_TROUBLESHOOTING = "https://sluicegate.github.io/sluicegate/troubleshooting/"
_PACKAGES = ("sluicegate", "airflow_provider_sluicegate", "dagster_sluicegate")


class _Context(TypedDict, total=False):
    """These keys locate an error; see the attributes of `RedisMessageQueueError`."""

    queue: str | None
    operation: str | None
    message_id: str | None
    position: int | None


class RedisMessageQueueError(Exception):
    """This is the base class of every error that Sluicegate raises. It keeps its attributes when pickled.

    Its traceback ends with `docs_url`, as a note. The note is no part of `str(error)`, so log lines, dead letters and
    events do not have it.

    Attributes:
        queue: name of the queue. Each of these attributes is None if it is not known.
        operation: verb of the operation that failed, such as `publish`.
        message_id: id of the message, if the error concerns a single one.
        position: position of that message among those that the caller publishes, from 0.
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
        super().add_note(f"See {self.docs_url}")

    @property
    def docs_url(self) -> str:
        """Return the address of the error's entry in the documentation: what causes it, and what to do."""
        own = (kind for kind in type(self).__mro__ if kind.__module__.partition(".")[0] in _PACKAGES)
        return f"{_TROUBLESHOOTING}#{next(own).__name__.lower()}"

    def add_note(self, note: str, /) -> None:
        """Add a note above the address of the documentation, which stays the last one."""
        super().add_note(note)
        if len(self.__notes__) > 1:
            self.__notes__.insert(-1, self.__notes__.pop())

    def locate(self, **known: Unpack[_Context]) -> Self:
        """Set the attributes that are still None from `known`, and return the error."""
        for name, value in known.items():
            if value is not None and getattr(self, name) is None:
                setattr(self, name, value)
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild, (type(self), self.args, self.__dict__)


class ConfigurationError(RedisMessageQueueError, ValueError):
    """An option, a URL, a key function or a name is invalid; nothing was sent to Redis."""


class GroupNotFoundError(RedisMessageQueueError, LookupError):
    """The stream has no such group, and no start was given at which to create it."""


class EvictionPolicyError(ConfigurationError):
    """The queue has `require_noeviction=True`, and its server may evict its keys; nothing was published.

    Attributes:
        policy: the server's `maxmemory-policy`; None if the server does not report it.
    """

    def __init__(self, message: str, *, policy: str | None = None) -> None:
        super().__init__(message)
        self.policy = policy


class OptionTypeError(ConfigurationError, TypeError):
    """An option or argument has the wrong type, or there is no option of this name; nothing was sent to Redis."""


class GatewayContractError(RedisMessageQueueError, TypeError):
    """A user's own gateway lacks a part of the protocol, or breaks its contract."""


class MalformedStoredMessageError(RedisMessageQueueError, ValueError):
    """A stored value is not a Sluicegate entry."""


class PayloadTooLargeError(RedisMessageQueueError, ValueError):
    """A payload exceeds `max_payload_bytes`, or a message the server's limit; no message of its call was stored.

    Attributes:
        size: size in bytes of the payload as it would be stored, or of the message as it was sent.
        limit: maximum size in bytes; 0 if the server does not report it.
        position: position of the message among those that the caller publishes, from 0; None if it is not known.
    """

    def __init__(self, message: str, *, size: int, limit: int, position: int | None = None) -> None:
        super().__init__(message, position=position)
        self.size = size
        self.limit = limit


class PayloadTooDeepError(RedisMessageQueueError, ValueError):
    """A payload nests dicts and lists deeper than `max_payload_depth`; nothing was sent.

    Attributes:
        limit: maximum depth.
    """

    def __init__(self, message: str, *, limit: int) -> None:
        super().__init__(message)
        self.limit = limit


class QueueBackpressureError(RedisMessageQueueError):
    """The queue is at `max_pending_length` and did not free room in time; nothing was stored.

    Attributes:
        limit: `max_pending_length`.
        waiting: number of messages waiting in the queue: pending, returned and delayed.
        count: number of messages of the refused call.
        remediation: advice how to resolve it.
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
    """Messages were published, but the requested durability was not confirmed in time.

    Attributes:
        ids: the message ids of the call, by position.
        published: outcomes of the call as the core decoded them; use `report`.
        report: outcomes of the call as a `PublishReport`. A retry under the same deduplication key would be refused
            as a duplicate.
    """

    def __init__(
        self,
        message: str,
        *,
        ids: Sequence[str] = (),
        published: object = None,
        report: PublishReport | None = None,
    ) -> None:
        super().__init__(message)
        self.ids = tuple(ids)
        self.published = published
        self.report = report


class PublishUnknownError(RedisMessageQueueError):
    """A publish was sent, but its outcome can no longer be determined without risking a duplicate.

    Attributes:
        ids: the message ids of the batch, by position.
        calls: the prepared calls of the batch, for `RedisMessageQueue.publish_again`; empty if it is too late, and in
            another process, which has another clock.
        born: when the batch was made, by the gateway's clock.
        batch: the batch that those calls publish; None if there are no calls.
    """

    def __init__(
        self,
        message: str,
        *,
        ids: Sequence[str],
        calls: Sequence[Call[Any]] = (),
        born: float = 0.0,
        batch: object = None,
    ) -> None:
        super().__init__(message)
        self.ids = tuple(ids)
        self.calls = tuple(calls)
        self.born = born
        self.batch = batch

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild, (type(self), self.args, {**self.__dict__, "calls": (), "batch": None})


class BatchChangedError(RedisMessageQueueError):
    """A batch is published again under its id, but not with the same messages; publish under another `batch_id`."""


class LeaseLostError(RedisMessageQueueError):
    """This consumer no longer owns the lease, or another consumer settled some of its messages.

    Attributes:
        lease_id: id of the lease.
        lost: slots whose verdict did not take effect; their messages are or will be redelivered.
        settled: slots whose verdict did take effect.
    """

    def __init__(self, message: str, *, lease_id: str, lost: Sequence[int], settled: Sequence[int] = ()) -> None:
        super().__init__(message)
        self.lease_id = lease_id
        self.lost = tuple(lost)
        self.settled = tuple(settled)


class LeaseEndedError(LeaseLostError):
    """A lease cannot be attached or extended, because every message of it has a verdict; its work is done.

    Attributes:
        acked: messages that were acked or discarded.
        returned: messages that were nacked or released, which are claimable again.
        buried: messages that became dead letters.
    """

    def __init__(self, message: str, *, lease_id: str, acked: int, returned: int, buried: int) -> None:
        super().__init__(message, lease_id=lease_id, lost=())
        self.acked = acked
        self.returned = returned
        self.buried = buried


class CleanupFailedError(RedisMessageQueueError):
    """The handler finished, but its message could not be acked and will be redelivered.

    The `__cause__` is the reason.
    """


class AlreadySettledError(RedisMessageQueueError, ValueError):
    """A message already has another verdict, or does not belong to this lease."""


class QueueDrainedError(RedisMessageQueueError):
    """This queue object was drained or closed, so it no longer publishes."""


class DrainFailedError(RedisMessageQueueError):
    """The handler of a drain failed on some messages; all others stay acked.

    Attributes:
        summary: results of every partition, with a list of the failures.
    """

    def __init__(self, message: str, *, summary: object) -> None:
        super().__init__(message)
        self.summary = summary


class JobNotFoundError(RedisMessageQueueError, LookupError):
    """No job of this id is stored: it was never enqueued here, or its record was removed after it ended.

    Attributes:
        job_id: the id.
    """

    def __init__(self, message: str, *, job_id: str) -> None:
        super().__init__(message, message_id=job_id)
        self.job_id = job_id


class JobFailedError(RedisMessageQueueError):
    """A job failed for good, so it has no result.

    Attributes:
        job_id: the job's id.
        attempts: the number of its attempts.
        error_type: class name of its last error; "" without one.
        error: text of its last error.
    """

    def __init__(self, message: str, *, job_id: str, attempts: int = 0, error_type: str = "", error: str = "") -> None:
        super().__init__(message, message_id=job_id)
        self.job_id = job_id
        self.attempts = attempts
        self.error_type = error_type
        self.error = error


class JobCancelledError(RedisMessageQueueError):
    """A job was cancelled, so it has no result.

    Attributes:
        job_id: the job's id.
    """

    def __init__(self, message: str, *, job_id: str) -> None:
        super().__init__(message, message_id=job_id)
        self.job_id = job_id


class HandlerFailedError(RedisMessageQueueError):
    """A worker's handler failed without an exception: it returned False, or was cancelled."""


class InvalidPayloadError(RedisMessageQueueError, ValueError):
    """A payload does not fit what its handler takes; the worker buried the message.

    Attributes:
        paths: where it does not fit, such as `$.lines[2].price`.
    """

    def __init__(self, message: str, *, paths: Sequence[str] = ()) -> None:
        super().__init__(message)
        self.paths = tuple(paths)


class UnhandledTypeError(RedisMessageQueueError, LookupError):
    """No handler of a worker takes a message of this type; `on_unhandled` says what became of it.

    Attributes:
        message_type: the type; None for a message without one.
    """

    def __init__(self, message: str, *, message_type: str | None = None) -> None:
        super().__init__(message)
        self.message_type = message_type


class EmbeddedServerError(RedisMessageQueueError):
    """The embedded Redis server could not be started or joined."""


class EmbeddedServerNotFoundError(EmbeddedServerError):
    """No Redis server program was found on this machine."""


class UnsafeFolderError(EmbeddedServerError, ConfigurationError):
    """Another user owns the folder of an embedded server, can write to it or can replace it; nothing was started."""


def _rebuild(kind: type[RedisMessageQueueError], args: tuple[Any, ...], attributes: dict[str, Any]) -> object:
    """Rebuild a pickled error without calling its constructor, since an error that fails to unpickle breaks a pool."""
    error = kind.__new__(kind, *args)
    error.args = args
    error.__dict__.update(attributes)
    return error


if not TYPE_CHECKING:  # a checker of types would accept every name

    def __getattr__(name: str) -> object:
        """Load the errors that derive from those of redis-py when the first of them is used, and redis-py with them."""
        if name not in __all__:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        kind = globals()[name] = getattr(importlib.import_module("sluicegate._server_errors"), name)
        return kind
