"""The prepared calls of administration: pages to read, steps that act on what a page named, and totals."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from sluicegate.core import scripts
from sluicegate.core.call import Call
from sluicegate.core.entry import PREFIX_LENGTH
from sluicegate.core.keys import QueueKeys

__all__ = [
    "Cursor",
    "Named",
    "Owned",
    "Page",
    "PauseState",
    "Redriven",
    "Step",
    "Steps",
    "cancel",
    "forget",
    "head_of",
    "marker_of",
    "pause",
    "purge",
    "redrive",
    "scan",
    "stats",
]

MAX_BYTES = 4 * 1024 * 1024
_RECEIPT_MS = 3_600_000  # longer than any call is retried
_BOUND_MS = 7 * 24 * 3_600_000
_US = b"\x1f"
_KINDS = {"pending": b"list", "returned": b"zset", "delayed": b"zset", "dead": b"dead"}


@dataclass(frozen=True, slots=True)
class Cursor:
    """Behind which value a page begins: `place` of the first value for a list, else score and member of the last
    one.
    """

    place: int = 0
    score: bytes = b""
    member: bytes = b""


@dataclass(frozen=True, slots=True)
class Page:
    """Values of one state.

    Attributes:
        mark: the time in ms up to which letters are looked at.
        published: the queue's total at that moment.
        cancelled: likewise.
        read: values that were read, or wanted ids of dead letters that were looked for.
        ended: nothing is left to read.
        kept: the last value of a zset that was read and not told.
        items: place and value; whole, or as far as its deduplication key.
    """

    mark: int
    published: int
    cancelled: int
    read: int
    ended: bool
    kept: Cursor
    items: list[tuple[Any, bytes]] = field(repr=False)


@dataclass(frozen=True, slots=True)
class Named:
    """A message that a step shall act on: its id, or its whole entry in a zset, and its marker key, b"" for none."""

    name: bytes = field(repr=False)
    marker: bytes = b""


@dataclass(frozen=True, slots=True)
class Step:
    """Which step of which operation a call is; a repeat bears the same."""

    nonce: bytes
    number: int


class Steps:
    """Numbers the steps of one operation."""

    def __init__(self, nonce: bytes) -> None:
        self._nonce = nonce
        self._number = 0

    def next(self) -> Step:
        """The next step."""
        self._number += 1
        return Step(self._nonce, self._number)


@dataclass(frozen=True, slots=True)
class Redriven:
    """One step of a redrive: letters that went, those (by position) that are blocked, and the first without room."""

    redriven: int
    blocked: list[int]
    full_at: int | None


@dataclass(frozen=True, slots=True)
class PauseState:
    """Whether a queue is paused, and how often that has changed."""

    changes: int
    paused: bool


@dataclass(frozen=True, slots=True)
class Owned:
    """The id of the message that holds a deduplication key, b"" for none."""

    owner: bytes


def scan(
    keys: QueueKeys,
    state: str,
    *,
    most: int,
    cursor: Cursor = Cursor(),
    from_oldest: bool = False,
    mark: int | None = None,
    older_seconds: float = 0,
    whole: bool = False,
    wanted: Sequence[bytes] = (),
) -> Call[Page]:
    """Read a page of a state: a list from its newest value on, or from its oldest; a zset from its lowest score on."""
    kind = _KINDS[state]
    if kind == b"list":
        kind = b"oldest" if from_oldest else b"newest"
    args: list[bytes | int] = [
        kind,
        b"" if mark is None else mark,
        math.ceil(older_seconds * 1000),
        cursor.place if kind == b"newest" else cursor.score,
        cursor.member,
        most,
        MAX_BYTES,
        int(whole),
        *wanted,
    ]
    return Call(scripts.load("scan"), (getattr(keys, state), keys.dead_records, keys.counters), args, _page)


def purge(keys: QueueKeys, state: str, step: Step, named: Sequence[Named] = ()) -> Call[int]:
    """Delete named messages of a state; of `completed` and `failed`, everything."""
    kind = b"oldest" if state == "pending" else _KINDS.get(state, b"history")
    markers, args = _named_args(named)
    return Call(
        scripts.load("purge"),
        (
            getattr(keys, state),
            keys.dead_records,
            keys.leases,
            keys.counters,
            keys.published(step.nonce),
            *markers,
        ),
        (kind, step.number, _RECEIPT_MS, *args),
        _first,
    )


def cancel(keys: QueueKeys, state: str, step: Step, named: Sequence[Named], place: int, page: Page) -> Call[list[int]]:
    """Delete named waiting messages that were seen on a page which began at `place`; answers their positions."""
    markers, args = _named_args(named)
    return Call(
        scripts.load("cancel"),
        (getattr(keys, state), keys.leases, keys.counters, keys.published(step.nonce), *markers),
        (
            b"newest" if state == "pending" else b"zset",
            step.number,
            _RECEIPT_MS,
            place,
            place + page.read - 1,
            page.cancelled,
            *args,
        ),
        _positions,
    )


def redrive(
    keys: QueueKeys,
    step: Step,
    named: Sequence[Named],
    *,
    mark: int,
    max_pending_length: int = 0,
    patient: bool = True,
) -> Call[Redriven | None]:
    """Make named dead letters pending again; None while the mark's millisecond lasts, when patient."""
    markers, args = _named_args(named)
    return Call(
        scripts.load("redrive"),
        (
            keys.pending,
            keys.returned,
            keys.delayed,
            keys.dead,
            keys.dead_records,
            keys.counters,
            keys.wakeup,
            keys.published(step.nonce),
            *markers,
        ),
        (step.number, _RECEIPT_MS, mark, max_pending_length, _BOUND_MS, int(patient), *args),
        _redriven,
    )


def forget(keys: QueueKeys, encoded_key: bytes, owner: bytes = b"") -> Call[Owned]:
    """Tell who holds a deduplication key, or free it from that owner."""
    return Call(scripts.load("forget"), (keys.dedup(encoded_key), keys.leases), (owner,), Owned)


def pause(keys: QueueKeys, paused: bool, changes: int | None = None) -> Call[PauseState]:
    """Tell whether the queue is paused, or change it while nobody else has since."""
    args = (int(paused), b"" if changes is None else changes)
    return Call(scripts.load("pause"), (keys.leases, keys.counters, keys.wakeup), args, _pause_state)


def stats(keys: QueueKeys) -> Call[dict[str, int]]:
    """The totals by name."""
    return Call(scripts.load("stats"), (keys.counters,), (), _totals)


def head_of(value: bytes) -> tuple[bytes, bytes]:
    """The id and the deduplication key of an entry, or of as much of it as identifies it."""
    message_id, key, _ = value.split(_US, 2)
    return message_id[PREFIX_LENGTH:], key


def marker_of(keys: QueueKeys, value: bytes) -> bytes:
    """The marker key of an entry, or of as much of it as identifies it; b"" when there is none."""
    if value.count(_US) < 2 or value.startswith(_US):
        return b""
    key = head_of(value)[1]
    return keys.dedup(key) if key else b""


def _named_args(named: Sequence[Named]) -> tuple[list[bytes], list[bytes | int]]:
    markers: list[bytes] = []
    args: list[bytes | int] = []
    for one in named:
        if one.marker:
            markers.append(one.marker)
        args += (one.name, len(markers) if one.marker else 0)
    return markers, args


def _page(reply: list[Any]) -> Page:
    return Page(
        mark=int(reply[0]),
        published=reply[1],
        cancelled=reply[2],
        read=reply[3],
        ended=bool(reply[4]),
        kept=Cursor(score=reply[5], member=reply[6]),
        items=list(zip(reply[7::2], reply[8::2], strict=True)),
    )


def _first(reply: list[int]) -> int:
    return reply[0]


def _positions(reply: list[int]) -> list[int]:
    return [number - 1 for number in reply]


def _redriven(reply: list[int]) -> Redriven | None:
    if reply[0] < 0:
        return None
    return Redriven(reply[0], [number - 1 for number in reply[2:]], reply[1] - 1 if reply[1] else None)


def _pause_state(reply: list[int]) -> PauseState:
    return PauseState(reply[0], bool(reply[1]))


def _totals(reply: list[bytes] | dict[bytes, bytes]) -> dict[str, int]:
    pairs = reply.items() if isinstance(reply, dict) else zip(reply[::2], reply[1::2], strict=True)
    return {name.decode(errors="replace"): _total(value) for name, value in pairs}


def _total(value: bytes) -> int:
    try:
        return int(value)
    except ValueError:  # written from outside
        return 0
