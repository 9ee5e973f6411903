"""What the end of a delivery means for its message."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from sluicegate._lease_base import Verdict
from sluicegate.config import QueueConfig
from sluicegate.core import policies
from sluicegate.errors import InvalidPayloadError, UnhandledTypeError
from sluicegate.handling.report import End
from sluicegate.handling.retry import Reject, Retry
from sluicegate.message import Message

__all__ = ["OnUnhandled", "Outcome", "Policy"]

OnUnhandled: TypeAlias = Literal["bury", "ack", "retry"]


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a delivery ended, and the verdict that follows.

    Attributes:
        end: how it ended.
        verdict: for its message.
        error: why it did not succeed.
        result: what the handler returned, if it succeeded.
    """

    end: End
    verdict: Verdict
    error: Exception | None = None
    result: Any = None


@dataclass(frozen=True, slots=True)
class Policy:
    """Turns the ends of deliveries into verdicts.

    Attributes:
        config: the options of the queue.
        retry: the worker's, for handlers without one of their own; None for the queue's options alone.
        on_unhandled: what happens to a message that no handler takes.
    """

    config: QueueConfig
    retry: Retry | None
    on_unhandled: OnUnhandled

    def max_attempts(self, retry: Retry | None) -> int | None:
        """Return the attempt after which a failure buries a message; None for no bound.

        Args:
            retry: of the handler; None for the worker's.
        """
        chosen = retry or self.retry
        if chosen is not None and chosen.max_attempts is not None:
            return chosen.max_attempts
        if chosen is None and self.config.on_error != "retry":
            return 1
        return self.config.max_delivery_count

    def handled(self, message: Message, result: Any) -> Outcome:
        """Return what follows when the handler succeeded."""
        return Outcome(End.HANDLED, Verdict("ack", message), result=result)

    def raised(self, message: Message, error: Exception, retry: Retry | None) -> Outcome:
        """Return what follows when the handler failed.

        Args:
            message: the message.
            error: what was raised.
            retry: of the handler; None for the worker's.
        """
        if isinstance(error, Reject):
            return Outcome(End.REJECTED, Verdict("bury", message, error=error, reason=error.reason), error)
        return Outcome(End.FAILED, self._again(message, error, retry or self.retry), error)

    def invalid(self, message: Message, error: InvalidPayloadError) -> Outcome:
        """Return what follows when the payload does not validate."""
        return Outcome(End.INVALID, Verdict("bury", message, error=error, reason="invalid_payload"), error)

    def unhandled(self, message: Message, message_type: str | None) -> Outcome:
        """Return what follows when no handler takes the message."""
        what = "a message without a type" if message_type is None else f"type {message_type!r}"
        error = UnhandledTypeError(f"no handler takes {what}", message_type=message_type)
        if self.on_unhandled == "ack":
            return Outcome(End.UNHANDLED, Verdict("ack", message), error)
        if self.on_unhandled == "retry":
            return Outcome(End.UNHANDLED, self._again(message, error, self.retry or Retry()), error)
        return Outcome(End.UNHANDLED, Verdict("bury", message, error=error, reason="unhandled_type"), error)

    def _again(self, message: Message, error: Exception, retry: Retry | None) -> Verdict:
        """Return the verdict for a message that failed: by the policy, else by the options of the queue."""
        attempt = message.delivery_count
        if retry is None:
            failure = policies.after_error(self.config.on_error, self.config.backoff, attempt, error)
            return Verdict(failure.verb, message, failure.delay_seconds, error, failure.reason)
        if retry.max_attempts is not None and attempt >= retry.max_attempts:
            return Verdict("bury", message, error=error, reason="max_attempts")
        pause = policies.pause_seconds(retry.backoff or self.config.backoff, attempt, error)
        return Verdict("nack", message, pause, error)
