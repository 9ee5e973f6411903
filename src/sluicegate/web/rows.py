"""From what Redis says of a place to what the page shows of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields
from datetime import UTC, datetime
from typing import Any, TypeAlias

from sluicegate.errors import RedisMessageQueueError
from sluicegate.gates import FiredBy, Gate, why_not_ready
from sluicegate.place import Place
from sluicegate.report import Depth, QueueStats, StreamInfo
from sluicegate.survey import FoundPlace, Snapshot, StreamSnapshot
from sluicegate.web.history import History, Point
from sluicegate.web.refusals import described
from sluicegate.web.shapes import GateShape, PlaceShape, Row

__all__ = ["SPARKLINE_POINTS", "Gates", "gates_of", "place_shape", "point_of", "row_of"]

Seen: TypeAlias = Snapshot | StreamSnapshot | RedisMessageQueueError
Gates: TypeAlias = Mapping[str, Gate | Mapping[str, Gate]]
"""By the name of a queue, or `stream/group` for a group: a gate, or several by their labels."""

SPARKLINE_POINTS = 60
_DEPTH_FIELDS = [field.name for field in fields(Depth)]
_STATS_FIELDS = [field.name for field in fields(QueueStats)]


def point_of(seen: Snapshot | StreamSnapshot, at: float) -> Point:
    """Return what the charts keep of a snapshot."""
    if isinstance(seen, StreamSnapshot):
        return Point(at, seen.info.length, 0, 0, None, seen.info.published, 0)
    depth, stats = seen.depth, seen.stats
    return Point(
        at, depth.ready, depth.in_flight, depth.dead, depth.oldest_ready_age_seconds, stats.published, stats.acked
    )


def row_of(found: FoundPlace, seen: Seen, history: History, gates: Gates, *, points: int = SPARKLINE_POINTS) -> Row:
    """Return one line of the overview, with the newest points of its history.

    A queue that holds jobs is a job list, even where somebody asked for it as a queue.
    """
    holds_jobs = found.kind == "queue" and isinstance(seen, Snapshot) and seen.holds_jobs
    row: Row = {
        "kind": "jobs" if holds_jobs else found.kind,
        "name": found.place.name,
        "group": found.place.group,
        "depth": None,
        "stats": None,
        "rates": history.rates(),
        "history": history.ready(points),
    }
    if isinstance(seen, RedisMessageQueueError):
        said = described(seen)
        row["error"] = {"type": said["type"], "message": said["message"]}
    elif isinstance(seen, StreamSnapshot):
        row["info"] = _stream(seen.info)
    else:
        row["depth"] = {name: getattr(seen.depth, name) for name in _DEPTH_FIELDS}
        row["stats"] = {name: getattr(seen.stats, name) for name in _STATS_FIELDS}
    of_place = gates_of(gates, found.place)
    if of_place:
        row["gate"] = of_place[0][0]
        row["open"] = _fired_by(of_place, seen)
    return row


def place_shape(
    found: FoundPlace, seen: Seen, history: History, gates: Gates, at: float, *, whole: bool = True
) -> PlaceShape:
    """Return what the page of one place shows; unless it is whole, with the newest point of its chart only."""
    of_place = gates_of(gates, found.place)
    depth = seen.depth if isinstance(seen, Snapshot) else None
    shape: PlaceShape = {
        "row": row_of(found, seen, history, gates, points=SPARKLINE_POINTS if whole else 1),
        "gates": [shape for shape, _ in of_place],
        "open": _fired_by(of_place, seen),
        "why_not_ready": "" if depth is None else why_not_ready(depth, datetime.fromtimestamp(at, UTC)),
    }
    if whole:
        shape["history"] = history.chart()
    else:
        shape["points"] = history.chart(1)
    return shape


def gates_of(gates: Gates, place: Place) -> Sequence[tuple[GateShape, Gate]]:
    """Return the gates of a place, each as the page shows it and as itself."""
    name = place.name if place.group is None else f"{place.name}/{place.group}"
    given = gates.get(name)
    if given is None or (place.stream and place.group is None):
        return []
    labelled = {name: given} if isinstance(given, Gate) else given
    return [(_gate(label, gate), gate) for label, gate in labelled.items()]


def _fired_by(gates: Sequence[tuple[GateShape, Gate]], seen: Seen) -> FiredBy | None:
    """Return the condition by which one of the gates is open; None while all are closed."""
    if not isinstance(seen, Snapshot):
        return None
    return next((by for _, gate in gates if (by := gate.fired_by(seen.depth))), None)


def _gate(label: str, gate: Gate) -> GateShape:
    return {
        "label": label,
        "min_ready": gate.min_ready,
        "max_age_seconds": gate.max_age_seconds,
        "min_dead": gate.min_dead,
    }


def _stream(info: StreamInfo) -> dict[str, Any]:
    names = ("exists", "length", "first_id", "last_id", "published", "duplicates", "trimmed", "trimmed_unfinished")
    groups = [
        {"name": group.name, "lag": group.lag, "held": group.held, "consumers": group.consumers}
        for group in info.groups
    ]
    return {**{name: getattr(info, name) for name in names}, "groups": groups}
