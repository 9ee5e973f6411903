"""Decide by the depths of queues or groups whether a gate is open; sensor and triggers share it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, Literal

from airflow_provider_sluicegate.places import named_place, value_of

if TYPE_CHECKING:
    from sluicegate import Depth
    from sluicegate.gates import Gate
    from sluicegate.place import Place

__all__ = ["Look", "Match", "WatchedQueues", "counts_of"]

Match = Literal["any", "all"]
_MATCHES = ("any", "all")
_KINDS = {"queue_name": "queue", "group": "group"}


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
    The queues, or groups of a stream, that a gate watches, and what opens it.

    :param places: the queues or groups.
    :param gate: the condition for each of them.
    :param match: whether one of them is enough, or all must meet the condition.
    :param is_list: whether the user gave a list, so that the value is one of several queues or groups.
    """

    places: tuple[Place, ...]
    gate: Gate
    match: Match = "any"
    is_list: bool = False

    @classmethod
    def read(
        cls,
        queue_name: object,
        *,
        stream: object = None,
        group: object = None,
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

        places, is_list = _places(queue_name, stream, group)
        checks.one_of("match", match, _MATCHES)
        least, dead = _number("min_ready", min_ready, int), _number("min_dead", min_dead, int)
        gate = Gate(
            None if least is None else int(least),
            _number("max_age_seconds", max_age_seconds, float),
            None if dead is None else int(dead),
        )
        return cls(places, gate, match, is_list)  # type: ignore[arg-type]  # checked above

    def look(self, depths: Mapping[Place, Depth]) -> Look:
        """Decide by the depth of each watched queue or group."""
        now = datetime.now().astimezone()
        fired = {place: self.gate.fired_by(depths[place]) for place in self.places}
        decide = any if self.match == "any" else all
        is_open = decide(by is not None for by in fired.values())
        values = [{**counts_of(place, depths[place]), "fired_by": fired[place]} for place in self.places]
        text = "; ".join(self._text(place, depths[place], fired[place], now) for place in self.places)
        return Look(is_open, self._value(values, fired) if self.is_list else values[0], text)

    def _value(self, values: list[dict[str, Any]], fired: Mapping[Place, str | None]) -> dict[str, Any]:
        """Return the value of several queues, or of several groups."""
        names = [place.group or place.name for place in self.places if fired[place]]
        return {"groups" if self.places[0].stream else "queues": values, "open": names}

    def _text(self, place: Place, depth: Depth, fired_by: str | None, now: datetime) -> str:
        from sluicegate.gates import why_not_ready

        why = "" if fired_by else why_not_ready(depth, now)
        counts = ("ready", "pending", "in_flight", "delayed", "dead", "paused")
        shown = ", ".join(f"{count.replace('_', ' ')} {getattr(depth, count)}" for count in counts)
        state = f"open, by {fired_by}" if fired_by else f"closed{why and ': '}{why}"
        return f"{place}: {shown}; the gate opens when {self.gate.condition}; {state}"


def counts_of(place: Place, depth: Depth) -> dict[str, Any]:
    """Return the counts of a queue or group, as XComs and events carry them."""
    return {
        **value_of(place),
        "ready": depth.ready,
        "pending": depth.pending,
        "in_flight": depth.in_flight,
        "delayed": depth.delayed,
        "dead": depth.dead,
        "paused": depth.paused,
        "oldest_ready_age_seconds": depth.oldest_ready_age_seconds,
    }


def _places(queue_name: object, stream: object, group: object) -> tuple[tuple[Place, ...], bool]:
    """Return the places that are watched, and whether the user gave a list of them."""
    from sluicegate.errors import ConfigurationError

    several = "queue_name" if stream is None else "group"
    given = queue_name if stream is None else group
    if given is None or isinstance(given, str):
        places = [_place(queue_name, stream, group)]
    elif isinstance(given, Sequence) and given:
        rest = (stream, group) if stream is None else (queue_name, stream)
        places = [_place(each, *rest) if stream is None else _place(*rest, each) for each in given]
    else:
        raise ConfigurationError(f"{several} must be the name of a {_KINDS[several]} or a list of names, not {given!r}")
    if len(set(places)) < len(places):
        raise ConfigurationError(f"{several} has a name twice: {given!r}")
    return tuple(places), not (given is None or isinstance(given, str))


def _place(queue_name: object, stream: object, group: object) -> Place:
    from sluicegate.errors import ConfigurationError

    try:
        return named_place(queue_name, stream, group, is_read=True)
    except (ValueError, TypeError) as error:
        argument = "queue_name" if stream is None else "stream and group"
        raise ConfigurationError(f"{argument}: {error}; if it is a template, see what it renders to") from None


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
