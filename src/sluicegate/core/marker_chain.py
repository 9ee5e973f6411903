"""The chain of a queue's marker generations, as one client knows it, and where the markers of some keys stand.

Deduplication markers are fields of hashes, one hash per generation and bucket. `counters.markers` holds the chain: the
generations, oldest first, each as `number:bits:span_ms:until_ms;`. A generation has `2**bits` buckets, takes markers
that live for up to `span_ms`, and none of them lives beyond `until_ms`. A marker's bucket is given by the first bits of
the CRC-32 of its field.

A client names the buckets in KEYS by the chain that it knows. Where that is not the stored one, a script changes
nothing and answers the stored one.
"""

from __future__ import annotations

import hashlib
import re
import struct
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple
from zlib import crc32

__all__ = ["Generation", "MarkerChain", "Markers", "field_of"]

_MAX_FIELD_LENGTH = 128
_MAX_TEXT_LENGTH = 4096
_MAX_BITS = 16
_END = b"\0"
_TEXT = re.compile(rb"(?:\d+:\d+:\d+:\d+;)*")
_ITEM = re.compile(rb"(\d+):(\d+):(\d+):(\d+);")


class Generation(NamedTuple):
    """One generation of markers.

    Attributes:
        number: its number, greater than those of older generations.
        bits: it has `2**bits` buckets.
        span_ms: the longest life of a marker in it.
        until_ms: when the last of its markers has expired, by the server's clock.
    """

    number: int
    bits: int
    span_ms: int
    until_ms: int


_FIRST = (Generation(1, 0, 0, 0),)  # a queue without a chain opens it with this generation,
_FIRST_OF_MANY = (Generation(1, 4, 0, 0),)  # or with this one in a call of many keys, which others will follow
_MANY = 100


@dataclass(frozen=True, slots=True)
class Markers:
    """Where the markers of some keys stand, as a script takes it.

    Attributes:
        chain: the chain that this holds for.
        plan: of each field, in the order of `fields`, the position of its key as u16; then per generation, the number
            of its buckets that are named and how many consecutive fields each has. Empty when each generation has one.
        fields: one per key, each followed by a zero byte, in the order of their hashes if there is a plan.
        buckets: the hashes, the oldest generation first.
        distinct: whether no two of the keys are equal.
    """

    chain: bytes
    plan: bytes
    fields: bytes
    buckets: tuple[bytes, ...]
    distinct: bool = True


def field_of(encoded_key: bytes) -> bytes:
    """Return the field of the marker of an encoded deduplication key: the key, or a hash if it has over 128 bytes.

    Injective, because an encoded key contains no colon. Only a key of another program contains a zero byte.
    """
    if len(encoded_key) > _MAX_FIELD_LENGTH or _END in encoded_key:
        return b":" + hashlib.sha256(encoded_key).hexdigest().encode()
    return encoded_key


class MarkerChain:
    """What one client knows of the chain of one queue; all operations of a session share it.

    It is replaced as a whole, so that threads may read and learn it at the same time.

    Args:
        root: what the names of all buckets begin with.
    """

    __slots__ = ("_known", "_root")

    def __init__(self, root: bytes) -> None:
        self._root = root
        self._known: tuple[bytes, tuple[Generation, ...]] = (b"", _FIRST)

    @property
    def text(self) -> bytes:
        """Return the chain as it is stored; empty before anything is known."""
        return self._known[0]

    @property
    def generations(self) -> tuple[Generation, ...]:
        """Return the generations, oldest first; the first one of all when the chain is empty."""
        return self._known[1]

    def learn(self, text: bytes) -> None:
        """Know this chain from now on."""
        if text != self._known[0]:
            self._known = (text, _parse(text))

    def bucket(self, generation: Generation, field: bytes) -> bytes:
        """Return the key of the hash in which a generation has the marker of this field."""
        return self._name(generation.number, crc32(field) >> (32 - generation.bits))

    def bucket_names(self, generation: Generation) -> list[bytes]:
        """Return the keys of all buckets of a generation."""
        return [self._name(generation.number, bucket) for bucket in range(1 << generation.bits)]

    def locate(self, keys: Sequence[bytes]) -> Markers:
        """Say where the markers of these encoded keys stand."""
        text, generations = self._known
        if not keys:
            return Markers(text, b"", b"", ())
        if not text and len(keys) >= _MANY:
            generations = _FIRST_OF_MANY
        joined, distinct = _joined(keys), len(set(keys)) == len(keys)
        if max(map(len, keys)) > _MAX_FIELD_LENGTH or joined.count(_END) > len(keys):
            keys = [field_of(key) for key in keys]
            joined = _joined(keys)
        if not any(generation.bits for generation in generations):
            return Markers(text, b"", joined, tuple([self._name(one.number, 0) for one in generations]), distinct)
        # Sorted as one small number each: the first bits of the hash, then the place.
        most, places = max(generation.bits for generation in generations), len(keys).bit_length()
        above, below = 32 - most, (1 << places) - 1
        sorted_keys = sorted([crc32(key) >> above << places | at for at, key in enumerate(keys)])
        order, hashes = [one & below for one in sorted_keys], [one >> places for one in sorted_keys]
        buckets: list[bytes] = []
        plan = [struct.pack(f"<{len(order)}H", *order)]
        for number, bits, _, _ in generations:
            # Their order is that of the hashes, because a counter keeps the order in which it counts.
            runs = Counter([one >> (most - bits) for one in hashes] if bits < most else hashes)
            prefix = b"%b%d:" % (self._root, number)
            buckets += [b"%b%d" % (prefix, bucket) for bucket in runs]
            plan.append(struct.pack(f"<{len(runs) + 1}H", len(runs), *runs.values()))
        fields = _joined([keys[at] for at in order])
        return Markers(text, b"".join(plan) if len(keys) > 1 else b"", fields, tuple(buckets), distinct)

    def _name(self, number: int, bucket: int) -> bytes:
        return b"%b%d:%d" % (self._root, number, bucket)


def _joined(fields: Sequence[bytes]) -> bytes:
    return _END.join(fields) + _END


def _parse(text: bytes) -> tuple[Generation, ...]:
    """Return the generations of a chain; of one that another program has overwritten, none."""
    if not text:
        return _FIRST
    if len(text) > _MAX_TEXT_LENGTH or not _TEXT.fullmatch(text):
        return ()
    items = [[int(value) for value in item] for item in _ITEM.findall(text)]
    return tuple([Generation(number, min(bits, _MAX_BITS), span, until) for number, bits, span, until in items])
