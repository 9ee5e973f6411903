"""The groups of a stream: create one at an explicit start, delete one, describe them all."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil
from typing import Any

from sluicegate.core import scripts
from sluicegate.core.call import Call, Operation
from sluicegate.core.keys import GroupKeys, QueueKeys, StreamKeys, text_of
from sluicegate.core.stream_ids import Start
from sluicegate.errors import ConfigurationError, RedisMessageQueueError

__all__ = [
    "OWN_KEYS",
    "TEMPORARY_PREFIX",
    "CreatedGroup",
    "Deletion",
    "GroupFound",
    "StreamFound",
    "create_group_call",
    "create_group_operation",
    "delete_group_call",
    "delete_group_operation",
    "keep_group_call",
    "stream_info_call",
]

TEMPORARY_PREFIX = "~replay-"
"""Names of temporary groups begin with it, so that scripts know them from their names."""
_RECEIPT_MS = 3_600_000
_MAX_STEPS = 10_000  # of 500 leases each
_OTHERS = {"name", "markers", "pending", "leases", "counters"}
OWN_KEYS = [slot for slot in QueueKeys.__slots__ if slot[0] != "_" and slot not in _OTHERS]
"""The keys of a group that a deletion removes without looking into them."""


@dataclass(frozen=True, slots=True)
class CreatedGroup:
    """The answer to the creation of a group.

    Attributes:
        created: whether this call created it.
        start: the start that was asked for when it was created; "" when another program created it.
        position: the id that it has read last.
    """

    created: bool
    start: str
    position: str


@dataclass(frozen=True, slots=True)
class Deletion:
    """The answer to one step of a deletion.

    Attributes:
        state: 0: there is no such group; 1: it was found; 2: leases must be named; 3: it is deleted.
        mark: identifies the group that was found.
        names: leases that the next step must name.
    """

    state: int
    mark: bytes = b""
    names: Sequence[bytes] = ()


@dataclass(frozen=True, slots=True)
class GroupFound:
    """A group of a stream as Redis knows it."""

    name: bytes
    consumers: int
    held: int
    position: str
    lag: int | None
    start: str
    expires_in_seconds: float | None


@dataclass(frozen=True, slots=True)
class StreamFound:
    """A stream as Redis knows it."""

    exists: bool
    length: int
    first_id: str | None
    last_id: str | None
    last_generated_id: str
    entries_added: int | None
    published: int
    duplicates: int
    trimmed: int
    trimmed_unfinished: int
    groups: list[GroupFound]


def create_group_call(
    keys: GroupKeys, nonce: bytes, start: str, position: str, *, life_seconds: float = 0
) -> Call[CreatedGroup]:
    """Prepare the call that creates a group behind `position`, unless it exists."""
    return Call(
        scripts.load("create_group"),
        (keys.stream, keys.groups, keys.published(nonce)),
        (keys.group.encode(), start.encode(), position.encode(), ceil(life_seconds * 1000), _RECEIPT_MS),
        lambda reply: CreatedGroup(bool(reply[0]), text_of(reply[1]), reply[2].decode()),
    )


def create_group_operation(keys: GroupKeys, nonce: bytes, start: Start, *, life_seconds: float = 0) -> Operation[bool]:
    """Create a group at its start, and the stream with it; a group that exists stays where it is.

    Args:
        keys: the keys of the group.
        nonce: identifies this operation.
        start: where it starts.
        life_seconds: how long a temporary group lives without a keep-alive; 0 for one that lasts.

    Returns:
        Whether it was created.

    Raises:
        ConfigurationError: the group exists, and was created at another start.
    """
    made: CreatedGroup = yield create_group_call(keys, nonce, start.text, start.position, life_seconds=life_seconds)
    if made.start and made.start != start.text:
        raise ConfigurationError(
            f"group {keys.group!r} of stream {keys.name!r} exists: it was created with start={made.start!r}, not "
            f"{start.text!r}, and has read up to {made.position}; leave start out to continue there, or use replay() "
            "to move it back"
        )
    return made.created


def keep_group_call(keys: GroupKeys) -> Call[bool]:
    """Prepare the call that keeps a temporary group alive; the answer is whether it exists."""
    return Call(scripts.load("keep_group"), (keys.groups,), (keys.group.encode(),), bool)


def delete_group_call(
    keys: GroupKeys, mark: bytes = b"", *, expired: bool = False, names: Sequence[bytes] = ()
) -> Call[Deletion]:
    """Prepare one step of a deletion; without a mark, the call that answers it."""
    return Call(
        scripts.load("delete_group"),
        (
            keys.stream,
            keys.groups,
            keys.leases,
            keys.counters,
            *(getattr(keys, slot) for slot in OWN_KEYS),
            *(keys.lease(name) for name in names),
        ),
        (keys.group.encode(errors="surrogateescape"), mark, int(expired), *names),
        _decode_deletion,
    )


def delete_group_operation(keys: GroupKeys, *, expired: bool = False) -> Operation[bool]:
    """Delete a group with all that it holds.

    Args:
        keys: the keys of the group.
        expired: whether to delete it only if it is temporary and has expired.

    Returns:
        Whether there was such a group.
    """
    found: Deletion = yield delete_group_call(keys, expired=expired)
    if found.state == 0:
        return False
    step = found
    for _ in range(_MAX_STEPS):
        step = yield delete_group_call(keys, found.mark, expired=expired, names=step.names)
        if step.state != 2:
            return True
    raise RedisMessageQueueError(f"group {keys.group!r} of stream {keys.name!r} has more leases than can be deleted")


def stream_info_call(keys: StreamKeys) -> Call[StreamFound]:
    """Prepare the call that describes a stream and its groups."""
    return Call(scripts.load("stream_info"), (keys.stream, keys.counters, keys.groups), (), _decode_info)


def _decode_deletion(reply: list[Any]) -> Deletion:
    state = reply[0]
    return Deletion(state, mark=reply[1] if state == 1 else b"", names=reply[1:] if state == 2 else ())


def _decode_info(reply: list[Any]) -> StreamFound:
    exists, length, first, last, generated, added, totals, groups = reply
    published, duplicates, trimmed, unfinished = totals
    return StreamFound(
        exists=bool(exists),
        length=length,
        first_id=first.decode() or None,
        last_id=last.decode() or None,
        last_generated_id=generated.decode(),
        entries_added=None if added < 0 else added,
        published=published,
        duplicates=duplicates,
        trimmed=trimmed,
        trimmed_unfinished=unfinished,
        groups=[_decode_group(*group) for group in groups],
    )


def _decode_group(
    name: bytes, consumers: int, held: int, position: bytes, lag: int, start: bytes, left_ms: int
) -> GroupFound:
    known = None if lag < 0 else lag
    left = None if left_ms < 0 else left_ms / 1000
    return GroupFound(name, consumers, held, position.decode(), known, text_of(start), left)
