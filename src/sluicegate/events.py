"""A queue passes these events to `on_event`: one per call, after the transition, with a count."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

__all__ = ["EventOperation", "EventOutcome", "QueueEvent"]


class EventOperation(StrEnum):
    """This is the transition that an event reports."""

    PUBLISH = "publish"
    PROMOTE = "promote"
    CLAIM = "claim"
    TAKE_OVER = "take_over"
    ATTACH = "attach"
    EXTEND = "extend"
    HANDLE = "handle"
    SETTLE = "settle"
    ACK = "ack"
    NACK = "nack"
    RELEASE = "release"
    BURY = "bury"
    REAP = "reap"
    REDRIVE = "redrive"
    PURGE = "purge"
    CANCEL = "cancel"
    FORGET = "forget"
    PAUSE = "pause"
    RESUME = "resume"
    REPAIR = "repair"
    DRAIN = "drain"
    DEPTH = "depth"
    STATS = "stats"
    PEEK = "peek"
    TRIM = "trim"
    REPLAY = "replay"


class EventOutcome(StrEnum):
    """This is the outcome of a transition."""

    SUCCESS = "success"
    DUPLICATE = "duplicate"
    EMPTY = "empty"
    HELD = "held"
    PAUSED = "paused"
    LOST = "lost"
    DROPPED = "dropped"
    REFUSED = "refused"
    RETRY = "retry"
    FAILURE = "failure"
    START = "start"
    SET_ASIDE = "set_aside"
    UNHANDLED = "unhandled"


@dataclass(frozen=True, slots=True)
class QueueEvent:
    """An event reports one transition of messages of a queue.

    Events that differ only in `error`, `duration_seconds` or `held_seconds` are equal.

    Attributes:
        operation: the transition.
        outcome: its outcome.
        queue: name of the queue.
        count: number of messages concerned.
        lease_id: id of the lease, if there is one.
        message_id: id of the message, if the event concerns a single known one.
        attempt: number of the failed attempt, for `RETRY`.
        seconds: a delay or a pause, if there is one.
        error: the exception. It may contain secrets and payloads, so it is not part of the repr; do not use it as a
            metric label.
        delivery_count: deliveries of the message, including the current one, if the event concerns a single known one.
        duration_seconds: duration of the call, including waits and retries, by a monotonic clock. For `HANDLE`, that
            of the handler with its middleware.
        held_seconds: for the end of a lease's messages (acked, nacked, released, buried or lost), the time since this
            consumer claimed, took over or attached the lease.
        message_type: for `HANDLE`, the type by which the worker chose the handler. Types without a handler are whatever
            a publisher writes, so they make poor metric labels.
    """

    operation: EventOperation
    outcome: EventOutcome
    queue: str
    count: int = 1
    lease_id: str | None = None
    message_id: str | None = None
    attempt: int | None = None
    seconds: float | None = None
    error: BaseException | None = field(default=None, repr=False, compare=False)
    delivery_count: int | None = None
    duration_seconds: float | None = field(default=None, compare=False)
    message_type: str | None = None
    held_seconds: float | None = field(default=None, compare=False)

    @property
    def exception_type(self) -> str | None:
        """Return the class name of the error, which is safe as a metric label."""
        return type(self.error).__name__ if self.error is not None else None
