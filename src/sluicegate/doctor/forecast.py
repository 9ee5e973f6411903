"""The forecast of memory: what deduplication markers and a growing backlog will need."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from sluicegate.core.transitions.examine import Examination
from sluicegate.core.transitions.snapshot import Snapshot
from sluicegate.doctor.finding import Finding, note, ok, warning
from sluicegate.doctor.keyspace import Keyspace, Markers
from sluicegate.doctor.server_facts import ServerFacts
from sluicegate.doctor.units import count, duration, size
from sluicegate.place import Place

__all__ = ["Rates", "check_forecast", "marker_bytes"]

_MARKER_BYTES = 140  # of a marker whose memory cannot be asked; docs/operations.md has the table
_ENTRY_BYTES = 65  # of a message beyond what is stored of it, measured
_SHORT_HOURS = 6


@dataclass(frozen=True, slots=True)
class Rates:
    """What changed in a place while it was watched.

    Attributes:
        seconds: for how long.
        published: messages per second.
        growth: messages per second by which the backlog grows; below 0 while it shrinks.
    """

    seconds: float
    published: float
    growth: float

    @classmethod
    def between(cls, first: Snapshot, last: Snapshot, seconds: float) -> Rates:
        """Compute the rates from two snapshots."""
        if seconds <= 0:
            return cls(0, 0, 0)
        stored = [
            each.depth.pending + each.depth.returned + each.depth.delayed + each.depth.in_flight
            for each in (first, last)
        ]
        published = max(0, last.stats.published - first.stats.published)
        return cls(seconds, published / seconds, (stored[1] - stored[0]) / seconds)


def marker_bytes(markers: Markers) -> float:
    """Return the memory of one marker, by that of the hashes looked at."""
    return markers.size_bytes / markers.counted if markers.size_bytes and markers.counted else _MARKER_BYTES


def check_forecast(
    facts: ServerFacts,
    space: Keyspace,
    rates: Mapping[Place, Rates],
    examined: Mapping[Place, Examination],
) -> Iterator[Finding]:
    """Yield what the queues on one server will need, and how the sum is made.

    Args:
        facts: of the server.
        space: the sample of its keys.
        rates: of the places that were watched.
        examined: what was found in them.
    """
    room = _room(facts)
    more = 0.0
    sums = []
    for place, markers in sorted(space.markers.items(), key=lambda item: str(item[0])):
        sum_, extra = _marker_sum(place, markers, space, rates.get(place))
        sums.append(sum_)
        more += extra
    if sums:
        yield _markers(facts, sums, more, room)
    for place, rate in rates.items():
        if rate.growth > 0 and place in examined:
            yield from _backlog(facts, place, rate, examined[place], room)


def _marker_sum(place: Place, markers: Markers, space: Keyspace, rate: Rates | None) -> tuple[str, float]:
    """Return the sum in words, and by how much it exceeds what the markers need now."""
    now, each = space.estimated(markers.seen), marker_bytes(markers)
    there = f"{place}: about {count(now, 'marker')} of {each:.0f} bytes now, {size(now * each)}"
    if rate is None or not rate.published or markers.window_seconds is None:
        return there, 0.0
    later = max(now, rate.published * markers.window_seconds)
    text = (
        f"{there}; at {rate.published:,.0f} publishes/s x {duration(markers.window_seconds)} (the longest that a "
        f"bucket of markers looked at stays) x {each:.0f} bytes, {size(later * each)}"
    )
    return text, (later - now) * each


def _markers(facts: ServerFacts, sums: Sequence[str], more: float, room: int | None) -> Finding:
    text = "; ".join(sums)
    advice = "shorten deduplication_window_seconds, use deduplication_policy='until_acked', or raise maxmemory"
    if room is None:
        return note("forecast", facts.server, f"markers, {text}", advice if more else "")
    left = f"; {size(room)} of maxmemory are free"
    if more > room:
        return warning("forecast", facts.server, f"markers will not fit: {text}{left}", advice)
    return ok("forecast", facts.server, f"markers, {text}{left}")


def _backlog(facts: ServerFacts, place: Place, rate: Rates, found: Examination, room: int | None) -> Iterator[Finding]:
    looked = [found.pending, found.returned, found.delayed]
    number = sum(one.count for one in looked)
    if not number or room is None:
        return
    each = _ENTRY_BYTES + sum(one.size for one in looked) / number
    seconds = room / (rate.growth * each)
    text = (
        f"the backlog grew by {rate.growth:,.1f} messages/s x {each:.0f} bytes during {duration(rate.seconds)}: so the "
        f"{size(room)} of maxmemory that are free last {duration(seconds)}"
    )
    if seconds < _SHORT_HOURS * 3600:
        yield warning(
            "forecast",
            str(place),
            text,
            "start more consumers, or limit the queue by max_pending_length, which refuses publishes earlier",
        )
    else:
        yield note("forecast", str(place), text)


def _room(facts: ServerFacts) -> int | None:
    """Return the memory that is left below maxmemory; None without a limit."""
    limit, used = facts.number("maxmemory"), facts.number("used_memory")
    return max(0, limit - used) if limit and used is not None else None
