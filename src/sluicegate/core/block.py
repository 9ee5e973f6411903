"""A block is one stored value that holds 2 to 250 messages of one publish, with this layout.

::

    3  00000000001c  0199f3c2b1a4  0000  <batch> US <positions> US <count> US <base> US <ranks> US
    │  │             │             │     <key bytes> US <payload bytes> US <headers> US
    │  │             │             │     <keys><payloads><ends of keys><ends of payloads>
    │  │             │             └ no delivery has ended: a lease returns its messages as entries
    │  │             └ time of enqueueing, ms since the epoch (12 hex digits)
    │  └ sequence of the first message (12 hex digits)
    └ kind: 3, or 4 when the deduplication markers are freed as the messages end

Message i has the id `<batch>-<positions[i]>` and the sequence of the first plus `ranks[i]`. Both lists are ranges, such
as `0-4,6-249`; `ranks` is empty when they are 0, 1, 2 and so on. All messages have the same headers. An end is an
unsigned integer of 32 bits, little endian. `base` is `<k>,<p>`: what to subtract from the ends of keys and of payloads.
The server writes the first 29 bytes.
"""

from __future__ import annotations

import struct
import sys
from array import array
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property, lru_cache
from itertools import accumulate
from operator import le
from typing import NamedTuple

from sluicegate.core.bounds import SEPARATOR
from sluicegate.core.entry import PREFIX_LENGTH

__all__ = [
    "MAX_BLOCK_BYTES",
    "MAX_ENTRY_BYTES",
    "MAX_MESSAGES",
    "MIN_MESSAGES",
    "Block",
    "Slices",
    "block_of_slices",
    "block_part",
]

MAX_MESSAGES = 250
MAX_BLOCK_BYTES = 64 * 1024
"""Bytes of a whole block."""
MIN_MESSAGES = 8
"""A publish stores fewer messages than that as entries."""
MAX_ENTRY_BYTES = 8 * 1024
"""A publish stores a larger message as an entry."""
_HEAD_FIELDS = 8
_KINDS = {ord("3"): b"1", ord("4"): b"2"}
_NO_DELIVERIES = b"0000"
_ENTRY = SEPARATOR.join((b"%b%012x%b-%d", b"%b", b"%b", b"%b"))
"""Kind, sequence, time to batch, position, key, headers, payload."""


class Slices(NamedTuple):
    """Values that lie behind one another, as an Arrow array of strings or of binary values has them.

    Attributes:
        offsets: `count + 1` signed integers of 32 bits in the byte order of this machine, from 0 on.
        data: the bytes of all values.
    """

    offsets: bytes
    data: memoryview


def block_part(
    batch: bytes, first: int, keys: Sequence[bytes], payloads: Sequence[bytes], headers: bytes = b""
) -> bytes:
    """Make the client's part of a block of consecutive messages, which follows the server's 29 bytes.

    Args:
        batch: the id of the publish.
        first: position of the first message in it.
        keys: the encoded deduplication key of each message; empty for none.
        payloads: of each message.
        headers: the encoded headers of all of them.
    """
    return block_of_slices(batch, first, keys, b"".join(payloads), [*accumulate(map(len, payloads))], headers)


def block_of_slices(
    batch: bytes, first: int, keys: Sequence[bytes], payloads: bytes | memoryview, ends: Sequence[int], headers: bytes
) -> bytes:
    """Make the same of payloads that lie behind one another, and end there."""
    count, all_keys = len(ends), b"".join(keys)
    head = SEPARATOR.join((
        batch, b"%d-%d" % (first, first + count - 1), b"%d" % count, b"0,0", b"", b"%d" % len(all_keys),
        b"%d" % len(payloads), headers, b"",
    ))  # fmt: skip
    return b"".join((head, all_keys, payloads, _packed(accumulate(map(len, keys))), _packed(ends)))


def _packed(numbers: Iterable[int]) -> bytes:
    packed = array("I", numbers)
    if sys.byteorder == "big":
        packed.byteswap()
    return packed.tobytes()


class Block:
    """The messages of a block, by their place: from 0 on, the oldest first.

    Attributes:
        value: the block as it is stored.
        count: its messages.
        kind: the first byte of its messages as entries.
        sequence: of the first message.
        enqueued_ms: when they were published.
        batch: the id of the publish.
        headers: the encoded headers of each.
    """

    def __init__(self, value: bytes) -> None:
        """Read the head of a block.

        Raises:
            ValueError: the value is no block.
        """
        if value[:1] not in (b"3", b"4") or value[25:PREFIX_LENGTH] != _NO_DELIVERIES:
            raise ValueError("no block")
        *fields, rest = value[PREFIX_LENGTH:].split(SEPARATOR, _HEAD_FIELDS)
        self.batch, positions, count, base, ranks, key_bytes, payload_bytes, self.headers = fields
        self.value = value
        self.kind = _KINDS[value[0]]
        self.sequence, self.enqueued_ms = int(value[1:13], 16), int(value[13:25], 16)
        self.count = int(count)
        self._positions, self._ranks = positions, ranks
        key_base, _, payload_base = base.partition(b",")
        self._key_base, self._payload_base = int(key_base), int(payload_base)
        self._keys_at = len(value) - len(rest)
        self._payloads_at = self._keys_at + int(key_bytes)
        ends_at = self._payloads_at + int(payload_bytes)
        if not (self.batch and 2 <= self.count <= MAX_MESSAGES) or len(value) != ends_at + 8 * self.count:
            raise ValueError("a block of impossible length")

    @classmethod
    def read(cls, value: bytes) -> Block | None:
        """Read a block with its whole index; None when the value is none, or was damaged from outside."""
        if value[:1] not in (b"3", b"4"):
            return None
        try:
            block = cls(value)
            _ = block.positions, block.ranks, block.key_ends, block.payload_ends
        except ValueError:
            return None
        return block

    @staticmethod
    def is_one(value: bytes) -> bool:
        """Return whether a stored value is a block or an entry, if it is one of them, by its first byte."""
        return value[0] in _KINDS

    @cached_property
    def positions(self) -> Sequence[int]:
        """Positions of the messages in their publish."""
        return _numbers(self._positions, self.count)

    @cached_property
    def ranks(self) -> Sequence[int]:
        """Offsets of the messages from the sequence of the first one."""
        return _numbers(self._ranks, self.count) if self._ranks else range(self.count)

    @cached_property
    def key_ends(self) -> tuple[int, ...]:
        """Ends of the keys behind the first byte of all of them."""
        return self._ends(self._end_of_payloads, self._key_base, self._payloads_at - self._keys_at)

    @cached_property
    def payload_ends(self) -> tuple[int, ...]:
        """Ends of the payloads behind the first byte of all of them."""
        at = self._end_of_payloads + 4 * self.count
        return self._ends(at, self._payload_base, self._end_of_payloads - self._payloads_at)

    @property
    def _end_of_payloads(self) -> int:
        return len(self.value) - 8 * self.count

    def _ends(self, at: int, base: int, size: int) -> tuple[int, ...]:
        ends = struct.unpack_from(f"<{self.count}I", self.value, at)
        if base:
            ends = tuple([end - base for end in ends])
        if ends[0] < 0 or ends[-1] != size or not all(map(le, ends, ends[1:])):
            raise ValueError("a block whose messages have impossible ends")
        return ends

    def keys(self) -> Slices:
        """Return the encoded deduplication keys."""
        return Slices(_offsets(self.key_ends), memoryview(self.value)[self._keys_at : self._payloads_at])

    def payloads(self) -> Slices:
        """Return the payloads."""
        return Slices(_offsets(self.payload_ends), memoryview(self.value)[self._payloads_at : self._end_of_payloads])

    def ids(self) -> list[bytes]:
        """List the ids of the messages."""
        start = self.batch + b"-"
        return [start + b"%d" % position for position in self.positions]

    def id_slices(self) -> Slices:
        """Return the same, one behind the other."""
        start, positions = self.batch + b"-", self.positions
        if isinstance(positions, range):
            numbers, offsets = _numbered(positions.start, positions.stop, len(start))
        else:
            numbers, offsets = _numbered_ids(positions, len(start))
        return Slices(offsets, memoryview(start + start.join(numbers)))

    def sequences(self) -> Sequence[int]:
        """Return the sequences of the messages."""
        first, ranks = self.sequence, self.ranks
        if isinstance(ranks, range):
            return range(first + ranks.start, first + ranks.stop)
        return [first + rank for rank in ranks]

    def key(self, place: int) -> bytes:
        """Return the encoded deduplication key of one message, empty for none."""
        return _slice(self.value, self._keys_at, self.key_ends, place)

    def payload(self, place: int) -> bytes:
        """Return the payload of one message."""
        return _slice(self.value, self._payloads_at, self.payload_ends, place)

    def entry(self, place: int) -> bytes:
        """Return one message as an entry."""
        return _ENTRY % (
            self.kind, self.sequence + self.ranks[place], self.value[13:PREFIX_LENGTH] + self.batch,
            self.positions[place], self.key(place), self.headers, self.payload(place),
        )  # fmt: skip

    def entries(self) -> list[bytes]:
        """Return all messages as entries."""
        value, keys, payloads = self.value, self._keys_at, self._payloads_at
        entries, key_from, payload_from = list[bytes](), keys, payloads
        begin = self.kind + b"%012x" + _escaped(value[13:PREFIX_LENGTH] + self.batch) + b"-%d"
        pattern = SEPARATOR.join((begin, b"%b", _escaped(self.headers), b"%b"))
        for sequence, position, key_end, payload_end in zip(
            self.sequences(), self.positions, self.key_ends, self.payload_ends, strict=True
        ):
            key_to, payload_to = keys + key_end, payloads + payload_end
            entries.append(pattern % (sequence, position, value[key_from:key_to], value[payload_from:payload_to]))
            key_from, payload_from = key_to, payload_to
        return entries

    def sizes(self) -> list[int]:
        """Return the bytes of each message as an entry."""
        fixed = PREFIX_LENGTH + len(self.batch) + 1 + 3 + len(self.headers)
        keys, payloads = _lengths(self.key_ends), _lengths(self.payload_ends)
        return [
            fixed + len(str(position)) + key + payload
            for position, key, payload in zip(self.positions, keys, payloads, strict=True)
        ]

    def __len__(self) -> int:
        return self.count


def _escaped(text: bytes) -> bytes:
    return text.replace(b"%", b"%%")


def _numbers(text: bytes, count: int) -> Sequence[int]:
    """Read ranges of ascending numbers."""
    first, dash, last = text.partition(b"-")
    if dash and b"," not in text and int(last) - int(first) == count - 1:
        return range(int(first), int(last) + 1)
    numbers: list[int] = []
    for part in text.split(b","):
        first, dash, last = part.partition(b"-")
        start, stop = int(first), int(last) if dash else int(first)
        if stop < start or stop - start >= count or (numbers and start <= numbers[-1]):
            raise ValueError("a block with impossible positions")
        numbers.extend(range(start, stop + 1))
    if len(numbers) != count:
        raise ValueError("a block with impossible positions")
    return numbers


@lru_cache(maxsize=64)
def _numbered(first: int, stop: int, length: int) -> tuple[list[bytes], bytes]:
    """Return the same for consecutive numbers, which recur: publishes of a size have blocks of the same positions."""
    return _numbered_ids(range(first, stop), length)


def _numbered_ids(numbers: Sequence[int], length: int) -> tuple[list[bytes], bytes]:
    """Return these numbers as text, and the offsets of ids that they end, behind a text of this length."""
    texts = [b"%d" % number for number in numbers]
    return texts, _offsets(accumulate([length + len(text) for text in texts]))


def _offsets(ends: Iterable[int]) -> bytes:
    return array("i", (0, *ends)).tobytes()


def _slice(value: bytes, at: int, ends: tuple[int, ...], place: int) -> bytes:
    return value[at + (ends[place - 1] if place else 0) : at + ends[place]]


def _lengths(ends: tuple[int, ...]) -> Iterator[int]:
    return map(int.__sub__, ends, (0, *ends))
