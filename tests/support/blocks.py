"""Messages that wait in a queue become blocks here, as a publish of many stores them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import redis

from sluicegate.core.block import MAX_BLOCK_BYTES, MAX_ENTRY_BYTES, MAX_MESSAGES, MIN_MESSAGES, Block, block_part
from sluicegate.core.entry import PREFIX_LENGTH, is_entry, payload_of, read_prefix, split_entry
from sluicegate.core.keys import QueueKeys

__all__ = ["block_of", "entries_of", "pack_pending", "packed", "slots_of", "unpack_pending", "values_of"]

_KINDS = {b"1": b"3", b"2": b"4"}


def pack_pending(
    client: redis.Redis,
    queue: str,
    *,
    least: int = MIN_MESSAGES,
    most: int = MAX_MESSAGES,
    max_bytes: int = MAX_BLOCK_BYTES,
) -> int:
    """Turn the waiting messages of a queue into blocks, with `counters.packed`, in one transaction; return how many.

    Only messages that follow one another in one publish and were never leased share a block. `least`, `most` and
    `max_bytes` limit blocks; a publish uses the defaults.
    """
    keys = QueueKeys(queue)
    stored = client.lrange(keys.pending, 0, -1)[::-1]  # the oldest first
    values = values_of([entry for value in stored for entry in entries_of(value)], least, most, max_bytes)
    blocks = [value for value in values if Block.read(value)]
    if values:
        with client.pipeline() as pipe:
            pipe.delete(keys.pending)
            pipe.lpush(keys.pending, *values)
            pipe.hset(keys.counters, "packed", packed(values))
            pipe.execute()
    return len(blocks)


def unpack_pending(client: redis.Redis, queue: str) -> list[bytes]:
    """Turn the blocks of a queue into single messages; return all that wait, the oldest first."""
    keys = QueueKeys(queue)
    stored = client.lrange(keys.pending, 0, -1)[::-1]
    entries = [entry for value in stored for entry in entries_of(value)]
    if len(entries) > len(stored):
        with client.pipeline() as pipe:
            pipe.delete(keys.pending)
            pipe.lpush(keys.pending, *entries)
            pipe.hdel(keys.counters, "packed")
            pipe.execute()
    return entries


def values_of(
    entries: Sequence[bytes], least: int = MIN_MESSAGES, most: int = MAX_MESSAGES, max_bytes: int = MAX_BLOCK_BYTES
) -> list[bytes]:
    """Return entries, oldest first, as the values that a publish stores."""
    values: list[bytes] = []
    for run in _runs(entries, most, max_bytes):
        values += [block_of(run)] if len(run) >= max(2, least) else run
    return values


def block_of(entries: Sequence[bytes]) -> bytes:
    """Return entries that follow one another in one publish as a block."""
    batch, first = _place(entries[0])
    fields = [split_entry(entry) for entry in entries]
    part = block_part(batch, first, [key for _, key, _, _ in fields], [payload for *_, payload in fields], fields[0][2])
    return _KINDS[entries[0][:1]] + entries[0][1:PREFIX_LENGTH] + part


def entries_of(value: bytes) -> list[bytes]:
    """Return the messages of a stored value as entries: of a block several, of any other value itself."""
    block = Block.read(value)
    return block.entries() if block else [value]


def slots_of(lease: Mapping[bytes, bytes]) -> dict[int, bytes]:
    """Return the messages of a lease's hash by slot; while a block's field exists, it outranks single slots."""
    slots = {int(name): value for name, value in lease.items() if name.isdigit()}
    for name, value in lease.items():
        block = Block.read(value) if name[:1] == b"b" and name[1:].isdigit() else None
        slots.update(enumerate(block.entries(), int(name[1:])) if block else ())
    return slots


def packed(values: Sequence[bytes]) -> int:
    """Return what `counters.packed` is for these values: messages minus values over the blocks."""
    return sum(len(entries_of(value)) - 1 for value in values)


def _runs(entries: Sequence[bytes], most: int, max_bytes: int) -> Iterator[list[bytes]]:
    run: list[bytes] = []
    for entry in entries:
        if run and not (len(run) < most and _follow(run[-1], entry) and len(block_of([*run, entry])) <= max_bytes):
            yield run
            run = []
        run.append(entry)
    if run:
        yield run


def _follow(one: bytes, other: bytes) -> bool:
    """Return whether two entries may share a block."""
    if not all(map(_may_be_packed, (one, other))) or one[13:25] != other[13:25] or one[:1] != other[:1]:
        return False
    (batch, position), (other_batch, other_position) = _place(one), _place(other)
    follows = batch == other_batch and position + 1 == other_position
    return (
        follows
        and read_prefix(one).sequence + 1 == read_prefix(other).sequence
        and split_entry(one)[2] == split_entry(other)[2]
    )


def _may_be_packed(entry: bytes) -> bool:
    return (
        is_entry(entry)
        and entry[:1] in _KINDS
        and entry[25:29] == b"0000"
        and len(payload_of(entry)) <= MAX_ENTRY_BYTES
    )


def _place(entry: bytes) -> tuple[bytes, int]:
    batch, _, position = split_entry(entry)[0].rpartition(b"-")
    return batch, int(position)
