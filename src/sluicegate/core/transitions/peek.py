"""A peek shows stored values of one state without claiming them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from sluicegate.core import scripts
from sluicegate.core.block import Block
from sluicegate.core.call import Call, Operation
from sluicegate.core.keys import QueueKeys

__all__ = ["MAX_BYTES", "PeekPlace", "Peeked", "peek_call", "peek_operation", "peek_pending_call"]

MAX_BYTES = 1024 * 1024
"""Bytes of stored values after which one call shows no more."""
_KINDS = {"dead": b"dead", "completed": b"history", "failed": b"history"}


@dataclass(slots=True)
class PeekPlace:
    """A peek place says where in `pending` an offset is, so that pages that follow one another search for none.

    Attributes:
        offset: messages before this place.
        values: stored values before it.
        rank: messages of the next value before it.
    """

    offset: int = 0
    values: int = 0
    rank: int = 0


@dataclass(frozen=True, slots=True)
class Peeked:
    """The answer to a call that shows what is pending.

    Attributes:
        ended: whether nothing follows.
        values: stored values before what follows.
        skip: messages behind them that are still to skip.
        entries: the entries shown.
    """

    ended: bool
    values: int
    skip: int
    entries: list[bytes] = field(repr=False)


def peek_call(keys: QueueKeys, state: str, count: int, *, offset: int = 0) -> Call[list[bytes]]:
    """Prepare the call that shows up to `count` values of a state, after skipping `offset` of them.

    It shows fewer once they have `MAX_BYTES` (unread ones of a group: eight times that), and b"" for a dead letter
    without a record.

    Args:
        keys: the keys of the queue.
        state: `returned`, `delayed`, `dead`, `completed`, `failed` or `set_aside`; `pending` of a group.
        count: the largest number of values.
        offset: values to skip.
    """
    kind = b"unread" if state == "pending" else _KINDS.get(state, b"zset")
    return _call(keys, state, (kind, count, offset, keys.group.encode()), list)


def peek_pending_call(keys: QueueKeys, count: int, *, offset: int = 0, place: int = 0) -> Call[Peeked]:
    """Prepare the call that shows up to `count` pending messages, and fewer where they are large.

    Args:
        keys: the keys of the queue.
        count: the largest number of messages.
        offset: messages to skip behind the place.
        place: stored values to pass before that.
    """
    return _call(keys, "pending", (b"pending", count, offset, keys.group.encode(), place), _decode_pending)


def _call(keys: QueueKeys, state: str, args: tuple[bytes | int, ...], decode: Any) -> Call[Any]:
    return Call(scripts.load("peek"), (getattr(keys, state), keys.dead_records, keys.counters), args, decode)


def peek_operation(
    keys: QueueKeys, state: str, count: int, *, offset: int = 0, place: PeekPlace | None = None
) -> Operation[list[bytes]]:
    """Show up to `count` values of a state, after skipping `offset` of them.

    It takes a call per MiB that is shown, and of pending messages also per MiB that is skipped; where there are no
    blocks, skipping takes none.

    Args:
        keys: the keys of the queue.
        state: as in `peek_call`, and `pending`.
        count: the largest number of values.
        offset: values to skip.
        place: where the caller's last page of pending messages ended; it moves behind this page.
    """
    if state != "pending" or keys.group:
        values: list[bytes] = []
        enough = 4 * MAX_BYTES if state == "pending" else MAX_BYTES  # a stream's entries are larger than its messages
        while True:
            found: list[bytes] = yield peek_call(keys, state, count - len(values), offset=offset + len(values))
            values += found
            if len(values) >= count or sum(map(len, found)) < enough:
                return [value for value in values if value]
    place = PeekPlace() if place is None or place.offset > offset else place
    entries: list[bytes] = []
    skip = place.rank + offset - place.offset
    while True:
        shown: Peeked = yield peek_pending_call(keys, count - len(entries), offset=skip, place=place.values)
        entries += shown.entries[: count - len(entries)]
        place.values, skip = shown.values, shown.skip
        if shown.ended or len(entries) >= count:
            place.offset, place.rank = offset + len(entries), skip
            return entries


def _decode_pending(reply: list[Any]) -> Peeked:
    ended, values, skip, first, *stored = reply
    entries: list[bytes] = []
    for value in stored:
        block = Block.read(value)
        entries += block.entries() if block else [value]
    return Peeked(bool(ended), values, skip, entries[first:])
