"""A schedule says when published messages become due, as `delay_seconds` or `due_at` ask for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from sluicegate import checks
from sluicegate.errors import ConfigurationError, OptionTypeError

__all__ = ["NOW", "Schedule", "parse_schedule"]


@dataclass(frozen=True, slots=True)
class Schedule:
    """A due time is relative to the server's clock when it stores the messages, or absolute.

    Attributes:
        delay_seconds: the delay; 0 for none.
        due_ms: the due time since the epoch; 0 if the delay counts.
    """

    delay_seconds: float = 0
    due_ms: int = 0


NOW = Schedule()


def parse_schedule(delay_seconds: Any = 0, due_at: Any = None) -> Schedule:
    """Check `delay_seconds` and `due_at`, and return the due time that they ask for.

    Args:
        delay_seconds: a number of seconds, 0 or more.
        due_at: an aware datetime; one in the past means at once.

    Raises:
        ConfigurationError: a delay that is no number of 0 or more (at most 100 years), a naive datetime, no time at all
            (pandas' NaT), or both given.
    """
    if due_at is None:
        if delay_seconds == 0 and type(delay_seconds) is int:
            return NOW
        checks.not_negative("delay_seconds", delay_seconds)
        return Schedule(delay_seconds=float(delay_seconds))
    if delay_seconds != 0:
        raise ConfigurationError("give delay_seconds or due_at, not both: each says when the message falls due")
    # By what it can do, not by its class: the core has no `datetime`, whose `now` would be a clock of its own.
    if not hasattr(due_at, "utcoffset") or not hasattr(due_at, "timestamp"):
        raise OptionTypeError(f"due_at must be an aware datetime, not {type(due_at).__name__}")
    if due_at != due_at:  # noqa: PLR0124  (pandas' NaT is a datetime by its class, and unequal to itself)
        raise ConfigurationError("due_at is not a time (NaT); leave it out for a message that is due at once")
    if due_at.utcoffset() is None:
        raise ConfigurationError(
            "due_at is a naive datetime: it names no instant without a time zone, and this machine's may not be the "
            "one you mean; give it one, such as due_at=datetime(..., tzinfo=UTC) or due_at.astimezone()"
        )
    microseconds = round(due_at.timestamp() * 1_000_000)
    return Schedule(due_ms=max(1, -(-microseconds // 1000)))
