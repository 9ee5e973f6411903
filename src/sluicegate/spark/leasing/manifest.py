"""Fixed manifests: which slots of which openings a table is made of, and how tasks read them, as often as they like.

A manifest names leases, never messages: a line of some fifty bytes for up to 10,000 of them. Reading needs no token and
changes nothing, so retries, speculative twins and a second action get the same rows, or an error that says why not.
"""

from __future__ import annotations

import base64
import math
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from pyspark.sql.datasource import DataSourceReader, InputPartition

from sluicegate.core import json
from sluicegate.core.ranges import format_ranges, parse_ranges
from sluicegate.errors import LeaseLostError
from sluicegate.message import Message
from sluicegate.queue import RedisMessageQueue
from sluicegate.spark._access import LeaseView, messages_in, read_lease
from sluicegate.spark._options import BrowseOptions, queue_of
from sluicegate.tables.columns import Columns

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

__all__ = ["Advise", "Fate", "ManifestReader", "Part", "Slice", "cut", "dump", "load", "make_reader", "read_slice"]

Fate = Literal["acked", "returned", "reaped", "settled"]
"""Why messages can no longer be read: their lease ended so, or, if they are `settled`, goes on without them."""
Advise = Callable[[Fate], str]

_FATES: dict[Fate, str] = {
    "acked": "was acked",
    "returned": "was given back to the queue",
    "reaped": "ran out or was taken by another run, so its messages are or will be delivered again",
    "settled": "have their verdict and cannot be read again",
}
_ADVICE: dict[Fate, str] = {
    "acked": "read before ack(), or keep what you still need with cache() or in a table",
    "returned": "read inside the block, and ack() before you leave it",
    "reaped": "start a new batch, with a longer lease_seconds if the driver was silent for longer than that",
    "settled": "take batch.df anew for what is left, or keep the rows that you still need with cache() or in a table "
    "before you ack them",
}
_ROWS_PER_TASK = 10_000
_FEWEST_ROWS_PER_TASK = 2500
_TASKS_OF_A_SMALL_READ = 4


@dataclass(frozen=True, slots=True)
class Part:
    """Some messages of one opening of a lease.

    Attributes:
        lease_id: the lease.
        opening: which opening of it; under another one the slots hold other messages.
        slots: ascending.
    """

    lease_id: str
    opening: str
    slots: Sequence[int]

    @classmethod
    def whole(cls, lease_id: str, opening: str, size: int) -> Part:
        """All messages that were claimed with it."""
        return cls(lease_id, opening, range(1, size + 1))

    def __len__(self) -> int:
        return len(self.slots)


@dataclass(frozen=True)
class Slice(InputPartition):
    """What one task reads: per part its lease, opening and slots as ranges."""

    parts: tuple[tuple[str, str, str], ...]


def dump(parts: Sequence[Part]) -> str:
    """A manifest as text. A lease that is held whole is its name, opening and size, else a compressed bit per slot."""
    head = parts[0].lease_id.rpartition("/")[0] + "/" if parts else ""
    prefix = head if all(part.lease_id.startswith(head) for part in parts) else ""
    leases: list[list[Any]] = []
    for part in parts:
        last = part.slots[-1]
        leases.append([part.lease_id.removeprefix(prefix), part.opening, last])
        if len(part.slots) < last:
            leases[-1].append(_pack(part.slots))
    return json.dumps({"prefix": prefix, "leases": leases}).decode()


def load(text: str) -> list[Part]:
    """The parts of a manifest."""
    manifest = json.loads(text)
    return [
        Part(manifest["prefix"] + name, opening, _unpack(held[0]) if held else range(1, last + 1))
        for name, opening, last, *held in manifest["leases"]
    ]


def cut(parts: Sequence[Part], partitions: int | None = None) -> list[Slice]:
    """Slices of about the same number of messages, at most so many, one at least: Spark takes none for another word.

    Without a number: 10,000 messages for a task, and up to four tasks for less, of 2,500 at least.
    """
    total = sum(len(part) for part in parts)
    if partitions is None:
        small = min(_TASKS_OF_A_SMALL_READ, math.ceil(total / _FEWEST_ROWS_PER_TASK))
        partitions = max(small, math.ceil(total / _ROWS_PER_TASK))
    size = max(1, math.ceil(total / max(1, partitions)))
    slices: list[Slice] = []
    taken: list[tuple[str, str, str]] = []
    room = size
    for part in parts:
        first = 0
        while first < len(part):
            slots = part.slots[first : first + room]
            taken.append((part.lease_id, part.opening, format_ranges(slots)))
            first, room = first + len(slots), room - len(slots)
            if room == 0:
                slices.append(Slice(tuple(taken)))
                taken, room = [], size
    if taken or not slices:
        slices.append(Slice(tuple(taken)))
    return slices


def read_slice(spec: str, piece: Slice, advise: Advise) -> Iterator[list[Message]]:
    """The messages of a slice, in claim order, a few MiB at a time, with a connection of its own.

    Args:
        spec: of the queue.
        piece: what to read.
        advise: what to do about messages that can no longer be read.

    Raises:
        LeaseLostError: some of them are no longer in that lease; says which, why, and what to do.
    """
    if not piece.parts:
        return
    queue = queue_of(spec)
    try:
        for lease_id, opening, slots in piece.parts:
            yield from _pages(queue, Part(lease_id, opening, parse_ranges(slots)), advise)
    finally:
        queue.close()


class ManifestReader(DataSourceReader):
    """Reads the leases of a manifest. Spark pickles it with every task."""

    def __init__(self, options: BrowseOptions, columns: Columns) -> None:
        self._options = options
        self._columns = columns

    def partitions(self) -> Sequence[InputPartition]:
        """The slices; planned from the manifest alone, without Redis."""
        return cut(load(self._options.manifest or ""), self._options.num_partitions)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of one slice."""
        assert isinstance(partition, Slice)
        for messages in read_slice(self._options.spec, partition, _ADVICE.__getitem__):
            yield from self._columns.table(messages).to_batches()


def make_reader(options: BrowseOptions, schema: StructType) -> ManifestReader:
    """What `spark.read` plans with; the schema is what Spark settled on."""
    return ManifestReader(options, Columns.of(schema, message_columns=False))


def _pack(slots: Sequence[int]) -> str:
    bits = bytearray(slots[-1] // 8 + 1)
    for slot in slots:
        bits[slot // 8] |= 1 << slot % 8
    return base64.b85encode(zlib.compress(bits)).decode()


def _unpack(text: str) -> list[int]:
    bits = zlib.decompress(base64.b85decode(text))
    return [at * 8 + bit for at, byte in enumerate(bits) if byte for bit in range(8) if byte >> bit & 1]


def _pages(queue: RedisMessageQueue, part: Part, advise: Advise) -> Iterator[list[Message]]:
    """The messages of a part, as many at a time as one look answers: those asked for, or an error."""
    wanted = list(part.slots)
    while wanted:
        seen = read_lease(queue, part.lease_id, wanted[0], wanted[-1])
        if seen.state != "open" or seen.opening != part.opening:
            raise _lost(queue, part, wanted, _fate_of(part, seen), advise)
        last = seen.slots[-1] if seen.slots else wanted[-1]
        held = {message.slot: message for message in messages_in(seen)}
        page = wanted[: next((at for at, slot in enumerate(wanted) if slot > last), len(wanted))]
        missing = [slot for slot in page if slot not in held]
        if missing:
            raise _lost(queue, part, missing, "settled", advise)
        yield [held[slot] for slot in page]
        wanted = wanted[len(page) :]


def _fate_of(part: Part, seen: LeaseView) -> Fate:
    if seen.opening != part.opening:
        return "reaped"
    return "acked" if seen.how == "acked" else "returned" if seen.how == "returned" else "reaped"


def _lost(queue: RedisMessageQueue, part: Part, slots: Sequence[int], fate: Fate, advise: Advise) -> LeaseLostError:
    what = f"lease {part.lease_id!r} of queue {queue.name!r}"
    if fate == "settled":
        what = f"{len(slots)} messages of {what}"
    return LeaseLostError(f"{what} {_FATES[fate]}; {advise(fate)}", lease_id=part.lease_id, lost=slots)
