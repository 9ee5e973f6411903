"""What a queue tells `on_event`: one event per call, after the fact, with a count."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

__all__ = ["EventOperation", "EventOutcome", "QueueEvent"]


class EventOperation(StrEnum):
    """The transition that an event is about."""

    PUBLISH = "publish"
    PROMOTE = "promote"
    CLAIM = "claim"
    TAKE_OVER = "take_over"
    EXTEND = "extend"
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


class EventOutcome(StrEnum):
    """How it went."""

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


@dataclass(frozen=True, slots=True)
class QueueEvent:
    """One thing that happened to messages of a queue.

    Attributes:
        operation: the transition.
        outcome: how it went.
        queue: name of the queue.
        count: messages that it concerned.
        lease_id: the lease, where there is one.
        message_id: the message, when it was one and is known.
        attempt: which attempt failed, for `RETRY`.
        seconds: a delay or a pause, where there is one.
        error: the exception. It may hold secrets and payloads: it stays out of the repr, and belongs in no metric.
        delivery_count: deliveries of the message, the present one included, when it was one and is known.
        duration_seconds: how long the call has taken, its waits and retries included, by a monotonic clock. Events
            that differ in nothing else, or in the error, are equal.
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

    @property
    def exception_type(self) -> str | None:
        """Class name of the error: safe as a label."""
        return type(self.error).__name__ if self.error is not None else None
