"""Packing turns the messages of a publish into the parts of its call: into blocks as far as they may share one."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from itertools import accumulate

from sluicegate.core.block import MAX_BLOCK_BYTES, MAX_ENTRY_BYTES, MAX_MESSAGES, MIN_MESSAGES, block_part
from sluicegate.core.bounds import SEPARATOR

__all__ = ["packed_parts"]

_HEAD_BYTES = 128  # of a block or an entry before its messages: prefix, id, counts


def packed_parts(batch: bytes, parts: Sequence[bytes], keys: Sequence[bytes]) -> list[bytes]:
    """Return how many messages each part of a call has, as text, b"" when each has one, and these parts.

    Args:
        batch: the id of the publish.
        parts: the client's part of each entry, from the first separator on.
        keys: the encoded deduplication key of each message, or none at all.
    """
    columns = _columns(parts, keys) if len(parts) >= MIN_MESSAGES else None
    if columns is None:
        return [b"", *parts]
    names, payloads, headers = columns
    counts, packed = list[int](), list[bytes]()
    for first, end in _runs([len(part) for part in parts], MAX_BLOCK_BYTES - len(headers) - _HEAD_BYTES):
        if end - first < MIN_MESSAGES:
            counts += [1] * (end - first)
            packed += parts[first:end]
        else:
            counts.append(end - first)
            packed.append(block_part(batch, first, names[first:end], payloads[first:end], headers))
    if len(packed) == len(parts):
        return [b"", *parts]
    return [b",".join([b"%d" % count for count in counts]), *packed]


def _columns(parts: Sequence[bytes], keys: Sequence[bytes]) -> tuple[Sequence[bytes], list[bytes], bytes] | None:
    """Return the keys, the payloads and the headers of the messages; None unless all have the same headers."""
    _, key, headers, _ = parts[0].split(SEPARATOR, 3)
    middle = SEPARATOR + headers + SEPARATOR
    if not keys and not key:
        start = SEPARATOR + middle
        if all(part.startswith(start) for part in parts):
            return [b""] * len(parts), [part[len(start) :] for part in parts], headers
    if keys:
        starts = [SEPARATOR + name + middle for name in keys]
        if all(map(bytes.startswith, parts, starts)):
            return keys, [part[len(start) :] for part, start in zip(parts, starts, strict=True)], headers
    fields = [part.split(SEPARATOR, 3) for part in parts]
    if any(field[2] != headers for field in fields):
        return None
    return [field[1] for field in fields], [field[3] for field in fields], headers


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
