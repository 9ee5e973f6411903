"""Decide by the depths of one or several queues whether a gate is open; sensor and triggers share it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from sluicegate import Depth
    from sluicegate.gates import Gate

__all__ = ["Look", "Match", "WatchedQueues", "counts_of"]

Match = Literal["any", "all"]
_MATCHES = ("any", "all")


@dataclass(frozen=True, slots=True)
class Look:
    """
    What one look at the depths found.

    :param is_open: whether the gate is open.
    :param value: the counts, as XComs and events carry them.
    :param text: the same for a log, with the reason while the gate is closed.
    """

    is_open: bool
    value: dict[str, Any]
    text: str


@dataclass(frozen=True, slots=True)
class WatchedQueues:
    """
    The queues that a gate watches, and what opens it.

    :param names: of the queues.
    :param gate: the condition for each of them.
    :param match: whether one queue is enough, or all must meet the condition.
    :param is_list: whether the user gave a list, so that the value is one of several queues.
    """

    names: tuple[str, ...]
    gate: Gate
    match: Match = "any"
    is_list: bool = False

    @classmethod
    def read(
        cls,
        queue_name: object,
        *,
        min_ready: object = None,
        max_age_seconds: object = None,
        min_dead: object = None,
        match: object = "any",
    ) -> WatchedQueues:
        """
        Read the arguments of a sensor or trigger, whose numbers are texts when they were templates.

        :raises ConfigurationError: a value that cannot work.
        """
        from sluicegate import checks
        from sluicegate.gates import Gate

        names = _names(queue_name)
        checks.one_of("match", match, _MATCHES)
        least, dead = _number("min_ready", min_ready, int), _number("min_dead", min_dead, int)
        gate = Gate(
            None if least is None else int(least),
            _number("max_age_seconds", max_age_seconds, float),
            None if dead is None else int(dead),
        )
        return cls(names, gate, match, not isinstance(queue_name, str))  # type: ignore[arg-type]  # checked above

    def look(self, depths: Mapping[str, Depth]) -> Look:
        """Decide by the depth of each watched queue."""
        now = datetime.now().astimezone()
        fired = {name: self.gate.fired_by(depths[name]) for name in self.names}
        decide = any if self.match == "any" else all
        is_open = decide(by is not None for by in fired.values())
        values = [{**counts_of(name, depths[name]), "fired_by": fired[name]} for name in self.names]
        value = {"queues": values, "open": [name for name in self.names if fired[name]]} if self.is_list else values[0]
        return Look(is_open, value, "; ".join(self._text(name, depths[name], fired[name], now) for name in self.names))

    def _text(self, name: str, depth: Depth, fired_by: str | None, now: datetime) -> str:
        from sluicegate.gates import why_not_ready

        why = "" if fired_by else why_not_ready(depth, now)
        counts = ("ready", "pending", "in_flight", "delayed", "dead", "paused")
        shown = ", ".join(f"{count.replace('_', ' ')} {getattr(depth, count)}" for count in counts)
        state = f"open, by {fired_by}" if fired_by else f"closed{why and ': '}{why}"
        return f"queue {name!r}: {shown}; the gate opens when {self.gate.condition}; {state}"


def counts_of(name: str, depth: Depth) -> dict[str, Any]:
    """Return the counts of a queue, as XComs and events carry them."""
    return {
        "queue": name,
        "ready": depth.ready,
        "pending": depth.pending,
        "in_flight": depth.in_flight,
        "delayed": depth.delayed,
        "dead": depth.dead,
        "paused": depth.paused,
        "oldest_ready_age_seconds": depth.oldest_ready_age_seconds,
    }


def _names(queue_name: object) -> tuple[str, ...]:
    from sluicegate.core.keys import QueueKeys
    from sluicegate.errors import ConfigurationError

    if isinstance(queue_name, str):
        names: tuple[Any, ...] = (queue_name,)
    elif isinstance(queue_name, Sequence) and queue_name:
        names = tuple(queue_name)
    else:
        raise ConfigurationError(f"queue_name must be the name of a queue or a list of names, not {queue_name!r}")
    for name in names:
        try:
            QueueKeys(name)
        except (ValueError, TypeError) as error:
            raise ConfigurationError(f"queue_name: {error}; if it is a template, see what it renders to") from None
    if len(set(names)) < len(names):
        raise ConfigurationError(f"queue_name has a name twice: {list(names)!r}")
    return names


def _number(name: str, value: object, kind: type[int] | type[float]) -> int | float | None:
    # A template renders to text, and to "None" for a parameter that is null.
    from sluicegate.errors import ConfigurationError

    if value is None or value in ("", "None"):
        return None
    if isinstance(value, str):
        try:
            return kind(value)
        except ValueError:
            pass
    elif isinstance(value, int if kind is int else (int, float)) and not isinstance(value, bool):
        return value
    raise ConfigurationError(f"{name} must be {'a whole number' if kind is int else 'a number'} or None, not {value!r}")
