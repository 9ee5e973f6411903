"""A sample of the keys on a server: markers, leases that no index names, and what deleted queues left behind."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from sluicegate.core.keys import PREFIX, decode_name, text_of
from sluicegate.core.transitions.groups import TEMPORARY_PREFIX
from sluicegate.doctor.finding import Finding, could_not_look, note, ok
from sluicegate.doctor.units import count
from sluicegate.gateway import RedisGateway
from sluicegate.place import Place

__all__ = ["Keyspace", "Markers", "check_orphans", "sample_keys"]

_PAGES, _PAGE = 40, 2_500
_MARKERS_ASKED = 20
_GROUP = rb"(?:group:(?P<group>(?:[^{}:%]|%[0-9A-F]{2})+):)?"
_KEY = re.compile(
    rb"%s:\{(?P<name>(?:[^{}:%%]|%%[0-9A-F]{2})+)\}:%s(?P<stream>stream:)?(?P<kind>[a-z_]+)(?P<rest>.*)"
    % (PREFIX.encode(), _GROUP),
    re.DOTALL,
)
# Keys without a TTL, which stay for ever when their queue is deleted by hand. Totals and wake-ups hold no message.
_LASTING = frozenset(
    (b"pending", b"returned", b"delayed", b"leases", b"lease", b"dead", b"set_aside", b"completed", b"failed")
)


@dataclass(slots=True)
class Markers:
    """The deduplication markers of one place that were seen.

    Attributes:
        buckets: how many of the keys looked at were hashes of its markers.
        some: a few of these keys.
        counted: markers in those few.
        size_bytes: the memory of those few; 0 if it could not be asked.
        window_seconds: the longest time that one of them stays; None if none was asked.
    """

    buckets: int = 0
    some: list[bytes] = field(default_factory=list)
    counted: int = 0
    size_bytes: int = 0
    window_seconds: float | None = None

    @property
    def seen(self) -> int:
        """Return about how many markers the hashes looked at hold."""
        return round(self.buckets * self.counted / max(1, len(self.some)))


@dataclass(slots=True)
class Keyspace:
    """A sample of the keys on one server.

    Attributes:
        server: where it is, in words.
        looked: how many keys were looked at.
        total: how many there are.
        refused: why nothing could be looked at; "" otherwise.
        markers: by the name of a queue or stream.
        leases: names of leases whose hashes were seen, by place.
        lasting: places that have keys without a TTL, with the names of these.
    """

    server: str
    looked: int = 0
    total: int = 0
    refused: str = ""
    markers: dict[Place, Markers] = field(default_factory=dict)
    leases: dict[Place, list[bytes]] = field(default_factory=dict)
    lasting: dict[Place, set[str]] = field(default_factory=dict)

    @property
    def is_complete(self) -> bool:
        """Return whether every key was looked at."""
        return self.looked >= self.total

    def estimated(self, seen: int) -> float:
        """Return how many keys of a kind there are, if so many were seen."""
        return seen * max(1.0, self.total / max(1, self.looked))


def sample_keys(gateway: RedisGateway) -> list[Keyspace]:
    """Look at up to 100,000 keys of each server, in pages of a millisecond; SCAN shows them in no order."""
    found = []
    for server, (reply,) in gateway.ask([("DBSIZE",)]).items():
        space = Keyspace(server, total=0 if isinstance(reply, Exception) else int(reply))
        _scan(gateway, space)
        if isinstance(reply, Exception):
            space.total = space.looked
        _ask_windows(gateway, space)
        found.append(space)
    return found


def check_orphans(spaces: Sequence[Keyspace], places: Iterable[Place], *, all_places: bool) -> Iterator[Finding]:
    """Yield keys of places that do not exist any more.

    Args:
        spaces: the samples.
        places: the places that exist.
        all_places: whether these are all; otherwise nothing is known of the others.
    """
    known = set(places)
    for space in spaces:
        if space.refused:
            yield could_not_look("orphans", space.server, f"SCAN is refused: {space.refused}", "grant +scan")
            continue
        lost = {place: names for place, names in space.lasting.items() if place not in known} if all_places else {}
        for place, names in sorted(lost.items(), key=str):
            yield note(
                "orphans",
                str(place),
                f"{', '.join(sorted(names))} are left of it, and nothing else: its other keys were deleted or evicted",
                "publish to it once and run repair to use them again, or delete them by their names",
            )
        if all_places and not lost:
            share = "every key" if space.is_complete else f"{space.looked:,} of {count(space.total, 'key')}"
            yield ok("orphans", space.server, f"{share} looked at: none of a deleted queue")


def _scan(gateway: RedisGateway, space: Keyspace) -> None:
    cursor: Any = b"0"
    for _ in range(_PAGES):
        reply = gateway.ask({space.server: [("SCAN", cursor, "COUNT", _PAGE)]})[space.server][0]
        if isinstance(reply, Exception):
            space.refused = str(reply)
            return
        cursor, keys = reply
        space.looked += len(keys)
        for key in keys:
            _note_key(space, key)
        if not int(cursor):
            space.total = space.looked = max(space.total, space.looked)
            return


def _note_key(space: Keyspace, key: bytes) -> None:
    parts = _KEY.fullmatch(key)
    if parts is None:
        return
    name, kind = decode_name(text_of(parts["name"])), parts["kind"]
    group = None if parts["group"] is None else decode_name(text_of(parts["group"]))
    if not name.strip() or (group is not None and (not group.strip() or group.startswith(TEMPORARY_PREFIX))):
        return
    place = Place(name, stream=parts["stream"] is not None or group is not None, group=group)
    if kind == b"markers":
        markers = space.markers.setdefault(place, Markers())
        markers.buckets += 1
        if len(markers.some) < _MARKERS_ASKED:
            markers.some.append(key)
    elif kind == b"lease" and parts["rest"].startswith(b":"):
        space.leases.setdefault(place, []).append(parts["rest"][1:])
    if kind in _LASTING:
        space.lasting.setdefault(place, set()).add("lease:*" if kind == b"lease" else text_of(kind + parts["rest"]))


def _ask_windows(gateway: RedisGateway, space: Keyspace) -> None:
    asked: Mapping[Place, Sequence[bytes]] = {place: markers.some for place, markers in space.markers.items()}
    questions: tuple[tuple[str, ...], ...] = (("PTTL",), ("HLEN",), ("MEMORY", "USAGE"))
    commands: list[tuple[Any, ...]] = [
        (*question, key) for keys in asked.values() for question in questions for key in keys
    ]
    if not commands:
        return
    replies = iter(gateway.ask({space.server: commands})[space.server])
    for place, keys in asked.items():
        left, counts, sizes = (
            [reply if isinstance(reply, int) and reply > 0 else 0 for reply in (next(replies) for _ in keys)]
            for _ in questions
        )
        markers = space.markers[place]
        markers.window_seconds = max(left) / 1000 if any(left) else None
        markers.counted = sum(counts)
        markers.size_bytes = sum(sizes) if all(sizes) else 0
