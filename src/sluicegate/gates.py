"""A gate says when a queue is deep or old enough to start work, and why nothing is ready while it is not."""

from __future__ import annotations

import math
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Literal

from sluicegate.checks import unfit
from sluicegate.core.transitions.depth import Depth
from sluicegate.errors import ConfigurationError

__all__ = ["FiredBy", "Gate", "why_not_ready"]

FiredBy = Literal["depth", "age", "dead"]


@dataclass(frozen=True, slots=True)
class Gate:
    """A gate opens when a queue is deep enough, its oldest ready message old enough, or its dead letters many enough.

    One condition is enough to open it. It is a pure value: `queue.depth()` reads, and the gate decides.

    Attributes:
        min_ready: open when so many messages are ready; None to ignore their number.
        max_age_seconds: open when the oldest ready message has been ready for so long; None to ignore its age.
        min_dead: open when there are so many dead letters; None to ignore them.

    Raises:
        ConfigurationError: no condition, or one that cannot work.
    """

    min_ready: int | None = None
    max_age_seconds: float | None = None
    min_dead: int | None = None

    def __post_init__(self) -> None:
        if self.min_ready is None and self.max_age_seconds is None and self.min_dead is None:
            raise ConfigurationError(
                "give min_ready, max_age_seconds or min_dead, or several; with none of them the gate never opens"
            )
        _check_count("min_ready", self.min_ready, "an empty queue opens no gate")
        _check_count("min_dead", self.min_dead, "a queue without dead letters opens no gate")
        age = self.max_age_seconds
        if age is not None and not (_is_number(age) and 0 < age < math.inf):
            raise unfit(
                f"max_age_seconds must be None or a finite number above 0, not {age!r}; min_ready=1 opens for any "
                "ready message",
                _is_number(age),
            )

    @property
    def condition(self) -> str:
        """Return in words what opens this gate."""
        conditions = []
        if self.min_ready is not None:
            conditions.append(f"{_counted(self.min_ready, 'message is', 'messages are')} ready")
        if self.max_age_seconds is not None:
            conditions.append(f"the oldest has been ready for {self.max_age_seconds:g} s")
        if self.min_dead is not None:
            conditions.append(f"{_counted(self.min_dead, 'message is', 'messages are')} dead")
        return " or ".join(conditions)

    def fired_by(self, depth: Depth) -> FiredBy | None:
        """Return the first condition that a depth meets, None while the gate stays closed.

        A paused queue never fires by depth or age, because nothing could be claimed from it.
        """
        if not depth.paused and depth.ready > 0:
            if self.min_ready is not None and depth.ready >= self.min_ready:
                return "depth"
            age = depth.oldest_ready_age_seconds
            if self.max_age_seconds is not None and age is not None and age >= self.max_age_seconds:
                return "age"
        return "dead" if self.min_dead is not None and depth.dead >= self.min_dead else None


def why_not_ready(depth: Depth, now: datetime) -> str:
    """Return why a claim would get nothing, such as `3 in flight until 12:04:10, 12 dead letters`.

    Args:
        depth: as `queue.depth()` returned it.
        now: when that was; the times are in its zone, with a date once they are a day away.

    Returns:
        "" when a claim would get messages; `no such queue yet` for one that nobody has published to; `empty` for one
        in which nothing waits.
    """
    if depth.ready > 0 and not depth.paused:
        return ""
    reasons = ["paused"] if depth.paused else []
    if depth.ready:
        reasons.append(f"{depth.ready} ready")
    in_leases, not_due = depth.in_flight - depth.expired, depth.delayed - depth.due
    # Beside expired leases or due messages, the earliest time is in the past and says nothing about the others.
    expiry = None if depth.expired else depth.next_expiry_seconds
    due = None if depth.due else depth.next_due_seconds
    if in_leases > 0:
        reasons.append(f"{in_leases} in flight{_until(now, expiry, several=depth.leases > 1)}")
    if not_due > 0:
        reasons.append(f"{not_due} delayed{_until(now, due, several=not_due > 1)}")
    if depth.dead:
        reasons.append(_counted(depth.dead, "dead letter", "dead letters"))
    if depth.set_aside:
        reasons.append(f"{depth.set_aside} set aside for a newer version")
    if not reasons:
        return "empty" if depth.published_total else "no such queue yet"
    return ", ".join(reasons)


def _until(now: datetime, seconds: float | None, *, several: bool) -> str:
    """Return when the first of some messages becomes claimable; "" if that is unknown or beyond what a date holds."""
    try:
        then = now + timedelta(seconds=seconds) if seconds is not None else None
    except OverflowError:
        then = None
    if then is None:
        return ""
    shown = then.strftime("%H:%M:%S" if then - now < timedelta(days=1) else "%Y-%m-%d %H:%M:%S")
    return f"{', the first' if several else ''} until {shown}"


def _check_count(name: str, value: object, why: str) -> None:
    is_int = isinstance(value, int) and not isinstance(value, bool)
    if value is not None and not (is_int and value >= 1):  # type: ignore[operator]
        raise unfit(f"{name} must be None or an int of 1 or more, not {value!r}; {why}", is_int)


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _counted(number: int, one: str, many: str) -> str:
    return f"{number} {one if number == 1 else many}"
