"""The calls of a move: what is read and taken where another library keeps it, and how it enters its new place."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib import resources
from typing import Any, Literal

from sluicegate.core.call import Call, or_chain
from sluicegate.core.keys import QueueKeys, StreamKeys
from sluicegate.core.scripts import Script, make_script

__all__ = [
    "SCRIPTS",
    "Described",
    "Entered",
    "HeldEntry",
    "StreamPage",
    "TakenPage",
    "beside",
    "describe_keys_call",
    "drop_entries_call",
    "drop_keys_call",
    "find_keys_call",
    "left_entries_call",
    "load_script",
    "mark_source_call",
    "move_in_call",
    "move_into_stream_call",
    "move_markers_call",
    "moved_page_call",
    "read_hashes_call",
    "read_list_call",
    "read_notes_call",
    "read_stream_call",
    "set_aside_call",
    "take_call",
]

SCRIPTS = (
    "describe_keys", "drop_entries", "drop_keys", "find_keys", "left_entries", "mark_source", "move_in",
    "move_into_stream", "move_markers", "moved_page", "read_hashes", "read_list", "read_notes", "read_stream",
    "set_aside", "take",
)  # fmt: skip
PAGE_SIZE = 1000
_MAX_BYTES = 4 * 1024 * 1024
_KEEP_MS = 365 * 86_400_000  # how long a move that was interrupted can be continued
State = Literal["waiting", "dead", "completed"]


@dataclass(frozen=True, slots=True)
class TakenPage:
    """Values that were taken from a list, the oldest first.

    Attributes:
        number: of the page; greater than those of earlier pages of the source.
        source: the id of the source.
        now_ms: the time of the source's server.
        values: none when none was left.
    """

    number: int
    source: bytes
    now_ms: int
    values: list[bytes] = field(repr=False)


@dataclass(frozen=True, slots=True)
class Described:
    """A key of another library.

    Attributes:
        kind: its type as Redis names it; `none` when there is no such key.
        size: its elements.
        left_ms: its time to live; -1 for no end.
    """

    kind: str
    size: int
    left_ms: int


@dataclass(frozen=True, slots=True)
class StreamPage:
    """Entries of a stream in their order: id, and fields and values in turn.

    Attributes:
        is_last: whether no entry follows.
        entries: of the page.
    """

    is_last: bool
    entries: list[tuple[bytes, list[bytes]]] = field(repr=False)


@dataclass(frozen=True, slots=True)
class HeldEntry:
    """An entry that a consumer of a group has read and not acked."""

    group: bytes
    consumer: bytes
    id: bytes
    idle_ms: int
    deliveries: int


@dataclass(frozen=True, slots=True)
class Entered:
    """How a page entered its new place.

    Attributes:
        count: messages that entered; 0 when the page had entered before.
        known: positions of jobs whose id is known there; then nothing entered.
        before: whether the page had entered before.
        last: the page that entered last, when another one was expected.
        greatest: the greatest id of the stream, when the ids of the page do not follow it.
    """

    count: int = 0
    known: tuple[int, ...] = ()
    before: bool = False
    last: bytes | None = None
    greatest: bytes | None = None


@cache
def load_script(name: str) -> Script:
    """Load one of the scripts that belong to this package alone."""
    source = resources.files("sluicegate.migrating") / "lua" / f"{name}.lua"
    return make_script(name, source.read_text(encoding="utf-8"))


def beside(key: bytes, suffix: bytes) -> bytes:
    """Return the name of a key of ours that is in the cluster slot of another library's key."""
    opened = key.find(b"{")
    tagged = opened >= 0 and key.find(b"}", opened + 1) > opened + 1
    return key + suffix if tagged or b"}" in key else b"{" + key + b"}" + suffix


def take_call(
    key: bytes,
    *,
    done: int,
    nonce: bytes,
    notes: Sequence[bytes] = (),
    wanted: Sequence[bytes] | None = None,
    count: int = PAGE_SIZE,
    max_bytes: int = _MAX_BYTES,
) -> Call[TakenPage]:
    """Prepare the call that takes the next page of a list: its oldest values, or those that are named."""
    return Call(
        load_script("take"),
        (key, beside(key, b":sluicegate:page"), *notes),
        (done, nonce, count, max_bytes, _KEEP_MS, int(wanted is not None), *(wanted or ())),
        lambda reply: TakenPage(int(reply[0]), reply[1], int(reply[2]), reply[3:]),
    )


def set_aside_call(key: bytes, number: int, values: Sequence[bytes]) -> Call[int]:
    """Prepare the call that sets values of a page aside."""
    keys = (beside(key, b":sluicegate:page"), beside(key, b":sluicegate:left"))
    return Call(load_script("set_aside"), keys, (number, *values), int)


def describe_keys_call(keys: Sequence[bytes]) -> Call[tuple[int, list[Described]]]:
    """Prepare the call that describes keys of one slot; the answer begins with the time in ms."""
    return Call(
        load_script("describe_keys"),
        tuple(keys),
        (),
        lambda reply: (int(reply[0]), [Described(kind.decode(), size, left) for kind, size, left in reply[1:]]),
    )


def read_list_call(key: bytes, *, offset: int = 0, count: int = 500, max_bytes: int = _MAX_BYTES) -> Call[list[bytes]]:
    """Prepare the call that reads values of a list, the oldest first."""
    return Call(load_script("read_list"), (key,), (offset, count, max_bytes), list)


def read_notes_call(
    deadlines: bytes, counts: bytes, values: Sequence[bytes]
) -> Call[tuple[int, list[tuple[int | None, int]]]]:
    """Prepare the call that reads deadline and deliveries of claimed values; the answer begins with the time in ms."""
    return Call(load_script("read_notes"), (deadlines, counts), tuple(values), _decode_notes)


def read_hashes_call(keys: Sequence[bytes]) -> Call[list[tuple[int, dict[bytes, bytes]]]]:
    """Prepare the call that reads hashes of one slot, each with its time to live in ms."""
    return Call(
        load_script("read_hashes"),
        tuple(keys),
        (),
        lambda reply: [(one[0], dict(zip(one[1::2], one[2::2], strict=True))) for one in reply],
    )


def drop_keys_call(keys: Sequence[bytes], of_field: bytes, expected: Sequence[bytes]) -> Call[int]:
    """Prepare the call that drops hashes whose field has the expected value."""
    return Call(load_script("drop_keys"), tuple(keys), (of_field, *expected), int)


def find_keys_call(near: bytes, pattern: bytes, *, cursor: bytes = b"0", count: int = 1000) -> Call[list[bytes]]:
    """Prepare one step of a search for keys; the answer begins with the cursor of the next one."""
    return Call(load_script("find_keys"), (near,), (cursor, pattern, count), list)


def mark_source_call(key: bytes, nonce: bytes) -> Call[bytes]:
    """Prepare the call that gives a stream an id."""
    return Call(load_script("mark_source"), (beside(key, b":sluicegate:source"),), (nonce, _KEEP_MS), bytes)


def read_stream_call(
    key: bytes, after: bytes, *, count: int = PAGE_SIZE, max_bytes: int = _MAX_BYTES
) -> Call[StreamPage]:
    """Prepare the call that reads entries of a stream."""
    return Call(
        load_script("read_stream"),
        (key,),
        (after, count, max_bytes),
        lambda reply: StreamPage(bool(reply[0]), [(one[0], one[1]) for one in reply[1:]]),
    )


def drop_entries_call(key: bytes, ids: Sequence[bytes], groups: Sequence[bytes], *, position: bytes = b"") -> Call[int]:
    """Prepare the call that drops entries of a stream, or acks them and moves the one group up to a position."""
    return Call(load_script("drop_entries"), (key,), (position, len(groups), *groups, *ids), int)


def left_entries_call(key: bytes, ids: Sequence[bytes] = ()) -> Call[set[bytes]]:
    """Prepare the call that adds ids of entries that stay in a stream, and answers with all of them."""
    return Call(load_script("left_entries"), (beside(key, b":sluicegate:left"),), (_KEEP_MS, *ids), set)


def moved_page_call(keys: QueueKeys, origin: bytes) -> Call[bytes | None]:
    """Prepare the call that reads which page of a source entered last."""
    return Call(load_script("moved_page"), (keys.moved,), (origin,), lambda reply: reply)


def move_in_call(
    keys: QueueKeys,
    origin: bytes,
    page: bytes,
    values: Iterable[bytes],
    *,
    state: State = "waiting",
    kind: bytes = b"1",
    after: bytes = b"",
) -> Call[Entered]:
    """Prepare the call by which a page of messages or jobs enters a queue."""
    return Call(
        load_script("move_in"),
        (
            keys.pending,
            keys.returned,
            keys.counters,
            keys.wakeup,
            keys.dead,
            keys.dead_records,
            keys.completed,
            keys.tracking,
            keys.tracking_ended,
            keys.moved,
        ),
        (origin, after, page, state.encode(), kind, _KEEP_MS, *values),
        _decode_entered,
    )


def move_into_stream_call(
    keys: StreamKeys,
    origin: bytes,
    after: bytes,
    page: bytes,
    entries: Sequence[tuple[bytes, Sequence[bytes]]],
    *,
    groups: Sequence[bytes] = (),
    held: Sequence[HeldEntry] = (),
) -> Call[Entered]:
    """Prepare the call by which a page of entries enters a stream, with what its groups hold of them."""
    args: list[bytes | int] = [origin, after, page, _KEEP_MS, len(groups), len(held), *groups]
    for one in held:
        args += (one.group, one.consumer, one.id, one.idle_ms, one.deliveries)
    for entry_id, fields in entries:
        args += (entry_id, len(fields), *fields)
    wakeups = [keys.wakeup_of(group) for group in groups]
    return Call(
        load_script("move_into_stream"), (keys.stream, keys.counters, keys.moved, *wakeups), args, _decode_entered
    )


def move_markers_call(
    keys: QueueKeys, encoded_keys: Sequence[bytes], owner: bytes, lives_ms: Sequence[int]
) -> Call[int]:
    """Prepare the call that holds deduplication keys, given as entries contain them."""
    markers = keys.markers.locate(encoded_keys)
    return Call(
        load_script("move_markers"),
        (keys.marker_counters, *markers.buckets),
        (owner, markers.chain, markers.plan, markers.fields, *lives_ms),
        or_chain(keys.markers, lambda reply: int(reply[0])),
        again=lambda: move_markers_call(keys, encoded_keys, owner, lives_ms),
    )


def _decode_notes(reply: list[bytes]) -> tuple[int, list[tuple[int | None, int]]]:
    pairs = zip(reply[1::2], reply[2::2], strict=True)
    return int(reply[0]), [(_deadline(deadline), int(count) if count.isdigit() else 0) for deadline, count in pairs]


def _deadline(raw: bytes | float) -> int | None:
    return int(float(raw)) if raw != b"" else None


def _decode_entered(reply: list[Any]) -> Entered:
    if reply[0] == -1:
        return Entered(before=True)
    if reply[0] == -2:
        return Entered(last=reply[1])
    if reply[0] == -3:
        return Entered(greatest=reply[1])
    if reply[0] == -4:
        return Entered(known=tuple(reply[1:]))
    return Entered(reply[0])
