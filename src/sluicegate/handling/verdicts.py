"""What the end of a delivery means for its message."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

from sluicegate._lease_base import Verdict
from sluicegate.config import QueueConfig
from sluicegate.core import policies
from sluicegate.errors import InvalidPayloadError, UnhandledTypeError
from sluicegate.handling.report import End
from sluicegate.handling.retry import Reject, Retry
from sluicegate.message import Message
from sluicegate.options import RetryBackoff

__all__ = ["Limits", "OnUnhandled", "Outcome", "Policy"]

OnUnhandled: TypeAlias = Literal["bury", "ack", "retry"]


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a delivery ended, and the verdict that follows.

    Attributes:
        end: how it ended.
        verdict: for its message.
        error: why it did not succeed.
    """

    end: End
    verdict: Verdict
    error: Exception | None = None


@dataclass(frozen=True, slots=True)
class Limits:
    """What holds for a message whose handler has no `Retry`, nor has the worker.

    Attributes:
        max_attempts: the delivery after which a failure buries it; None for no bound. No `Retry` exceeds it.
        backoff: how long it waits for its next delivery.
        on_error: what becomes of it at all.
    """

    max_attempts: int | None
    backoff: RetryBackoff
    on_error: policies.OnError = "retry"

    @classmethod
    def of(cls, config: QueueConfig) -> Limits:
        """Return those of a queue or a group."""
        return cls(config.max_delivery_count, config.backoff, config.on_error)


@dataclass(frozen=True, slots=True)
class Policy:
    """Turns the ends of deliveries into verdicts.

    Attributes:
        retry: the worker's, for handlers without one of their own; None for the limits alone.
        on_unhandled: what happens to a message that no handler takes.
    """

    retry: Retry | None
    on_unhandled: OnUnhandled

    def max_attempts(self, retry: Retry | None, limits: Limits) -> int | None:
        """Return the attempt after which a failure buries a message; None for no bound.

        Args:
            retry: of the handler; None for the worker's.
            limits: of the message.
        """
        chosen = retry or self.retry
        if chosen is None:
            return limits.max_attempts if limits.on_error == "retry" else 1
        bounds = [most for most in (chosen.max_attempts, limits.max_attempts) if most is not None]
        return min(bounds, default=None)

    def handled(self, message: Message, result: bytes | None = None) -> Outcome:
        """Return what follows when the handler succeeded.

        Args:
            message: the message.
            result: of a job, as it is stored.
        """
        return Outcome(End.HANDLED, Verdict("ack", message, result=result))

    def raised(self, message: Message, error: Exception, retry: Retry | None, limits: Limits) -> Outcome:
        """Return what follows when the handler failed.

        Args:
            message: the message.
            error: what was raised.
            retry: of the handler; None for the worker's.
            limits: of the message.
        """
        if isinstance(error, Reject):
            return Outcome(End.REJECTED, Verdict("bury", message, error=error, reason=error.reason), error)
        return Outcome(End.FAILED, _again(message, error, retry or self.retry, limits), error)

    def invalid(self, message: Message, error: InvalidPayloadError) -> Outcome:
        """Return what follows when the payload does not validate."""
        return Outcome(End.INVALID, Verdict("bury", message, error=error, reason="invalid_payload"), error)

    def unhandled(self, message: Message, message_type: str | None, limits: Limits) -> Outcome:
        """Return what follows when no handler takes the message."""
        what = "a message without a type" if message_type is None else f"type {message_type!r}"
        error = UnhandledTypeError(f"no handler takes {what}", message_type=message_type)
        if self.on_unhandled == "ack":
            return Outcome(End.UNHANDLED, Verdict("ack", message), error)
        if self.on_unhandled == "retry":
            return Outcome(End.UNHANDLED, _again(message, error, self.retry or Retry(), limits), error)
        return Outcome(End.UNHANDLED, Verdict("bury", message, error=error, reason="unhandled_type"), error)


def _again(message: Message, error: Exception, retry: Retry | None, limits: Limits) -> Verdict:
    """Return the verdict for a message that failed: by the policy, else by the limits."""
    attempt = message.delivery_count
    if retry is None:
        failure = policies.after_error(limits.on_error, limits.backoff, attempt, error)
        return Verdict(failure.verb, message, failure.delay_seconds, error, failure.reason)
    if retry.max_attempts is not None and attempt >= retry.max_attempts:
        return Verdict("bury", message, error=error, reason="max_attempts")
    pause = policies.pause_seconds(retry.backoff or limits.backoff, attempt, error)
    return Verdict("nack", message, pause, error)
