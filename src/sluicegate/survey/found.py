"""Finds by SCAN what is on a Redis, on every primary of a cluster."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from sluicegate.core.call import alone
from sluicegate.core.keys import PREFIX, QueueKeys, StreamKeys, decode_name, text_of
from sluicegate.core.transitions.groups import TEMPORARY_PREFIX, stream_info_call
from sluicegate.core.transitions.snapshot import Snapshot, snapshot_operation
from sluicegate.depths import run_together
from sluicegate.errors import RedisAccessError, RedisMessageQueueError, RedisUnavailableError
from sluicegate.gateway import RedisGateway
from sluicegate.place import Place

__all__ = ["FoundPlace", "PlaceKind", "find_places"]

PlaceKind: TypeAlias = Literal["queue", "stream", "group", "jobs"]
"""What a place is: a queue of messages, a stream, a group of a stream, or a queue of jobs."""

_PAGE = 5_000  # keys that a server looks at per SCAN, in about a millisecond
# A queue that its producers have only pushed to from outside has no counters yet. A type keeps markers out, whose
# names end as their deduplication keys do.
_SOUGHT = ((b"*counters", b"hash"), (b"pending", b"list"), (b"stream", b"stream"))
_KEY = re.compile(rb"%s:\{((?:[^{}:%%]|%%[0-9A-F]{2})+)\}:(.+)" % PREFIX.encode(), re.DOTALL)
_GROUP_COUNTERS = re.compile(rb"group:((?:[^{}:%]|%[0-9A-F]{2})+):counters", re.DOTALL)


@dataclass(frozen=True, slots=True)
class FoundPlace:
    """A place that was found, or that a user named.

    Attributes:
        place: where it is.
        kind: what it is.
    """

    place: Place
    kind: PlaceKind


def find_places(gateway: RedisGateway) -> list[FoundPlace]:
    """Find every queue, stream, group and queue of jobs, in the order of their names.

    It looks at every key of each server once or twice, in pages of a few thousand, so that no call takes long; it
    finds in about a second what is on a server with a million keys. Temporary groups are left out. What is created
    meanwhile may be found or not.

    Args:
        gateway: where to look.

    Raises:
        RedisUnavailableError: a server does not answer.
        RedisAccessError: the user may not use SCAN; name the places instead.
    """
    places = set(filter(None, map(_place_of, set(_scan(gateway)))))
    places.update(_groups_of(gateway, (place.name for place in places if place.stream and place.group is None)))
    jobs = _job_queues(gateway, [place.name for place in places if not place.stream])
    found = [FoundPlace(place, _kind(place, jobs)) for place in places]
    return sorted(found, key=lambda each: (each.place.name, each.place.stream, each.place.group or ""))


def _scan(gateway: RedisGateway) -> Iterator[bytes]:
    """Yield the names of the keys that tell where something is; some of them more than once."""
    first: list[tuple[Any, ...]] = [_page_command(number, b"0") for number in range(len(_SOUGHT))]
    left = {server: list(enumerate(replies)) for server, replies in gateway.ask(first).items()}
    while left:
        wanted: dict[str, list[tuple[int, tuple[Any, ...]]]] = {}
        for server, replies in left.items():
            for number, reply in replies:
                if isinstance(reply, Exception):
                    raise RedisAccessError(
                        f"Redis at {server} refused SCAN ({reply}), so its queues cannot be found; name them"
                    ) from reply
                cursor, keys = reply
                yield from keys
                if int(cursor):
                    wanted.setdefault(server, []).append((number, _page_command(number, cursor)))
        answers = gateway.ask({server: [command for _, command in sent] for server, sent in wanted.items()})
        if gone := wanted.keys() - answers.keys():
            raise RedisUnavailableError(f"{min(gone)} is no primary of the cluster any more; look again")
        left = {
            server: [(number, reply) for (number, _), reply in zip(sent, answers[server], strict=True)]
            for server, sent in wanted.items()
        }


def _page_command(number: int, cursor: bytes) -> tuple[Any, ...]:
    suffix, kind = _SOUGHT[number]
    return ("SCAN", cursor, "MATCH", f"{PREFIX}:{{*}}:".encode() + suffix, "COUNT", _PAGE, "TYPE", kind)


def _place_of(key: bytes) -> Place | None:
    """Return the place that a key belongs to, None for a key of another library."""
    key_parts = _KEY.fullmatch(key)
    if key_parts is None:
        return None
    name, suffix = decode_name(text_of(key_parts[1])), key_parts[2]
    if not name.strip():
        return None
    if suffix in (b"counters", b"pending"):
        return Place(name)
    if suffix in (b"stream", b"stream:counters"):
        return Place(name, stream=True)
    match = _GROUP_COUNTERS.fullmatch(suffix)
    return _group_of(name, decode_name(text_of(match[1]))) if match else None


def _group_of(stream: str, group: str) -> Place | None:
    """Return the place of a group, None for a temporary one and for a name that none of this library's has."""
    is_lasting = group.strip() and not group.startswith(TEMPORARY_PREFIX)
    return Place(stream, stream=True, group=group) if is_lasting else None


def _groups_of(gateway: RedisGateway, names: Iterable[str]) -> Iterator[Place]:
    """Yield the groups of streams; those that nothing was claimed from have no keys of their own."""
    operations = {Place(name, stream=True): alone(stream_info_call(StreamKeys(name))) for name in names}
    for place, found in run_together(gateway, operations, retry=False).items():
        if isinstance(found, RedisMessageQueueError):
            continue  # a reading of the stream shows it
        yield from filter(None, (_group_of(place.name, text_of(group.name)) for group in found.groups))


def _job_queues(gateway: RedisGateway, names: Iterable[str]) -> set[str]:
    """Return which of the queues ever held jobs."""
    found = run_together(gateway, {name: snapshot_operation(QueueKeys(name)) for name in names}, retry=False)
    return {name for name, snapshot in found.items() if isinstance(snapshot, Snapshot) and snapshot.holds_jobs}


def _kind(place: Place, jobs: set[str]) -> PlaceKind:
    if place.stream:
        return "stream" if place.group is None else "group"
    return "jobs" if place.name in jobs else "queue"
