"""A scan reads a page of the values of one state; bounded steps then act on values of that page."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import ceil
from typing import Any

from sluicegate.core import scripts
from sluicegate.core.call import Call
from sluicegate.core.keys import QueueKeys
from sluicegate.core.marker_chain import Markers

__all__ = ["RECEIPT_MS", "Cursor", "Page", "Step", "Steps", "Target", "scan_call", "target_args"]

RECEIPT_MS = 3_600_000
"""Life of the receipt of a step: longer than any call is retried."""

_MAX_BYTES = 1024 * 1024
_KINDS = {"pending": b"list", "returned": b"zset", "delayed": b"zset", "dead": b"dead"}


@dataclass(frozen=True, slots=True)
class Cursor:
    """A cursor says where a page begins.

    Attributes:
        place: in a list, the position of the first value of the page.
        score: in a sorted set, the score of the value before the page.
        member: in a sorted set, that value.
    """

    place: int = 0
    score: bytes = b""
    member: bytes = b""


@dataclass(frozen=True, slots=True)
class Page:
    """Values of one state.

    Attributes:
        mark: the time in ms up to which dead letters are considered.
        published: the queue's total of published messages at that moment.
        cancelled: how many values cancels had removed from its list at that moment.
        read: values that were read, or wanted ids of dead letters that were looked for.
        ended: whether nothing is left to read.
        kept: the last value of a sorted set that was read and left out.
        items: place and value; the value whole, or as far as its deduplication key.
    """

    mark: int
    published: int
    cancelled: int
    read: int
    ended: bool
    kept: Cursor
    items: list[tuple[Any, bytes]] = field(repr=False)


@dataclass(frozen=True, slots=True)
class Target:
    """A message that a step shall act on.

    Attributes:
        name: its id, or its whole entry in a sorted set.
        key: its deduplication key, b"" for none.
    """

    name: bytes = field(repr=False)
    key: bytes = field(default=b"", repr=False)


@dataclass(frozen=True, slots=True)
class Step:
    """Identifies one step of one operation; a repeat of the call carries the same."""

    nonce: bytes
    number: int


class Steps:
    """Numbers the steps of one operation."""

    def __init__(self, nonce: bytes) -> None:
        self._nonce = nonce
        self._number = 0

    def next(self) -> Step:
        """Make the next step."""
        self._number += 1
        return Step(self._nonce, self._number)


def scan_call(
    keys: QueueKeys,
    state: str,
    *,
    page_size: int,
    cursor: Cursor = Cursor(),
    from_oldest: bool = False,
    mark: int | None = None,
    older_seconds: float = 0,
    whole: bool = False,
    wanted: Sequence[bytes] = (),
) -> Call[Page]:
    """Prepare the call that reads a page of a state.

    Args:
        keys: the keys of the queue.
        state: `pending`, `returned`, `delayed` or `dead`.
        page_size: the largest number of values to read; of a list from its oldest value on, of messages, and more where
            the last value is a block.
        cursor: where the page begins.
        from_oldest: whether a list is read from its oldest value on; otherwise from its newest.
        mark: the mark of the first page; None on the first page.
        older_seconds: the least age of dead letters.
        whole: whether to answer whole values; otherwise up to their deduplication key.
        wanted: ids to look for; none for every value.
    """
    kind = _KINDS[state]
    if kind == b"list":
        kind = b"oldest" if from_oldest else b"newest"
    args: list[bytes | int] = [
        kind,
        b"" if mark is None else mark,
        ceil(older_seconds * 1000),
        cursor.place if kind == b"newest" else cursor.score,
        cursor.member,
        page_size,
        _MAX_BYTES,
        int(whole),
        *wanted,
    ]
    return Call(scripts.load("scan"), (getattr(keys, state), keys.dead_records, keys.counters), args, _decode)


def _decode(reply: list[Any]) -> Page:
    return Page(
        mark=int(reply[0]),
        published=reply[1],
        cancelled=reply[2],
        read=reply[3],
        ended=bool(reply[4]),
        kept=Cursor(score=reply[5], member=reply[6]),
        items=list(zip(reply[7::2], reply[8::2], strict=True)),
    )


def target_args(keys: QueueKeys, targets: Sequence[Target]) -> tuple[Markers, list[bytes | int]]:
    """Return the markers of the targets, and per target its name and the position of its marker, 0 for none."""
    named: list[bytes] = []
    args: list[bytes | int] = []
    for target in targets:
        if target.key:
            named.append(target.key)
        args += (target.name, len(named) if target.key else 0)
    return keys.markers.locate(named), args
