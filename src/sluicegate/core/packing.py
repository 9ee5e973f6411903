"""Packing turns the messages of a publish into the parts of its call: into blocks as far as they may share one."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, chain, repeat
from operator import add, sub
from typing import overload

from sluicegate.core.block import MAX_BLOCK_BYTES, MAX_ENTRY_BYTES, MAX_MESSAGES, MIN_MESSAGES, block_of_slices
from sluicegate.core.bounds import SEPARATOR

__all__ = ["Unjoined", "packed_parts"]

_HEAD_BYTES = 128  # of a block or an entry before its messages: prefix, id, counts


@dataclass(frozen=True, slots=True, eq=False)
class Unjoined(Sequence[bytes]):
    """The client's parts of entries, whose keys and payloads are joined when one is read: most are stored in blocks.

    It equals any sequence of the joined parts.

    Attributes:
        middle: the encoded headers, which all have, between two separators.
        keys: the encoded deduplication key of each, or none at all.
        payloads: of all, one behind the other.
        ends: where each payload ends.
    """

    middle: bytes
    keys: Sequence[bytes]
    payloads: bytes | bytearray
    ends: Sequence[int]

    def sizes(self) -> list[int]:
        """Return the bytes of each part."""
        fixed, payloads = len(SEPARATOR) + len(self.middle), map(sub, self.ends, chain((0,), self.ends))
        return [fixed + size for size in (map(add, payloads, map(len, self.keys)) if self.keys else payloads)]

    def size_bytes(self) -> int:
        """Return the bytes of all parts."""
        fixed = len(SEPARATOR) + len(self.middle)
        return len(self.ends) * fixed + sum(map(len, self.keys)) + self.start(len(self.ends))

    def cut(self, first: int, end: int) -> Unjoined:
        """Return the parts of a range."""
        start = self.start(first)
        ends = [at - start for at in self.ends[first:end]]
        return Unjoined(self.middle, self.keys[first:end], self.payloads[start : self.start(end)], ends)

    def start(self, at: int) -> int:
        """Return where a payload starts."""
        return self.ends[at - 1] if at else 0

    def __len__(self) -> int:
        return len(self.ends)

    def __iter__(self) -> Iterator[bytes]:
        middle, payloads, start = self.middle, self.payloads, 0
        for key, end in zip(self.keys or repeat(b""), self.ends, strict=False):
            yield SEPARATOR + key + middle + payloads[start:end]
            start = end

    @overload
    def __getitem__(self, at: int) -> bytes: ...
    @overload
    def __getitem__(self, at: slice) -> list[bytes]: ...
    def __getitem__(self, at: int | slice) -> bytes | list[bytes]:
        return [*self][at]

    def __eq__(self, other: object) -> bool:
        return [*self] == [*other] if isinstance(other, Sequence) else NotImplemented

    __hash__ = None  # type: ignore[assignment]


def packed_parts(batch: bytes, parts: Sequence[bytes], keys: Sequence[bytes]) -> list[bytes]:
    """Return how many messages each part of a call has, as text, b"" when each has one, and these parts.

    Args:
        batch: the id of the publish.
        parts: the client's part of each entry, from the first separator on.
        keys: the encoded deduplication key of each message, or none at all.
    """
    columns = None
    if len(parts) >= MIN_MESSAGES:
        columns = parts if isinstance(parts, Unjoined) else _columns(parts, keys)
    if columns is None:
        return [b"", *parts]
    names, ends, headers = columns.keys or [b""] * len(parts), columns.ends, columns.middle[1:-1]
    counts, packed, payloads = list[int](), list[bytes](), memoryview(columns.payloads)
    for first, end in _runs(columns.sizes(), MAX_BLOCK_BYTES - len(headers) - _HEAD_BYTES):
        if end - first < MIN_MESSAGES:
            counts += [1] * (end - first)
            packed += columns.cut(first, end)
        else:
            start = columns.start(first)
            own, own_ends = payloads[start : ends[end - 1]], [at - start for at in ends[first:end]]
            counts.append(end - first)
            packed.append(block_of_slices(batch, first, names[first:end], own, own_ends, headers))
    if len(packed) == len(parts):
        return [b"", *parts]
    return [b",".join([b"%d" % count for count in counts]), *packed]


def _columns(parts: Sequence[bytes], keys: Sequence[bytes]) -> Unjoined | None:
    """Split the parts again; None unless all have the same headers."""
    _, key, headers, _ = parts[0].split(SEPARATOR, 3)
    middle = SEPARATOR + headers + SEPARATOR
    if not keys and not key:
        start = SEPARATOR + middle
        if all(part.startswith(start) for part in parts):
            return _unjoined(middle, [], [part[len(start) :] for part in parts])
    if keys:
        starts = [SEPARATOR + name + middle for name in keys]
        if all(map(bytes.startswith, parts, starts)):
            return _unjoined(middle, keys, [part[len(start) :] for part, start in zip(parts, starts, strict=True)])
    fields = [part.split(SEPARATOR, 3) for part in parts]
    if any(field[2] != headers for field in fields):
        return None
    return _unjoined(middle, [field[1] for field in fields], [field[3] for field in fields])


def _unjoined(middle: bytes, keys: Sequence[bytes], payloads: Sequence[bytes]) -> Unjoined:
    return Unjoined(middle, keys, b"".join(payloads), [*accumulate(map(len, payloads))])


def _runs(sizes: Sequence[int], most: int) -> Iterator[tuple[int, int]]:
    """Yield the ranges of messages of these sizes that fit into a block; a message that may not is a range alone."""
    largest, first = MAX_ENTRY_BYTES - _HEAD_BYTES, 0
    alone = [at for at, size in enumerate(sizes) if size > largest] if max(sizes) > largest else []
    ends = [0, *accumulate(sizes)]
    for stop in (*alone, len(sizes)):
        while first < stop:
            end = min(first + MAX_MESSAGES, stop)
            room = ends[first] + most - 8 * (end - first)
            end = end if ends[end] <= room else max(first + 1, bisect_right(ends, room) - 1)
            yield first, end
            first = end
        if stop < len(sizes):
            yield stop, stop + 1
            first = stop + 1
