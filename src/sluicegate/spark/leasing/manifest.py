"""Read the leases of a fixed manifest: it names slots of openings, and tasks read them any number of times.

A manifest names leases, not messages: about fifty bytes for up to 10,000 messages. Reading needs no token and changes
nothing, so retries, speculative attempts and a second action get the same rows, or an error with the reason.
"""

from __future__ import annotations

import base64
import math
import zlib
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from pyspark.sql.datasource import DataSourceReader, InputPartition

from sluicegate.consumer import QueueConsumer
from sluicegate.core import json
from sluicegate.core.ledger import format_ranges, parse_ranges
from sluicegate.errors import LeaseLostError
from sluicegate.leased_messages import LeasedMessages
from sluicegate.spark._access import LeaseView, read_lease
from sluicegate.spark._options import BrowseOptions
from sluicegate.spark._place import place_of, queue_of
from sluicegate.tables.columns import Columns

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

__all__ = ["Advise", "LeaseEnd", "ManifestReader", "Part", "Slice", "cut", "dump", "load", "make_reader", "read_slice"]

LeaseEnd = Literal["acked", "returned", "reaped", "settled"]
"""Why messages can no longer be read: how their lease ended, or `settled` if it continues without them."""
Advise = Callable[[LeaseEnd], str]

_ENDS: dict[LeaseEnd, str] = {
    "acked": "was acked",
    "returned": "was released to the queue",
    "reaped": "expired or was taken over by another run, so its messages are or will be delivered again",
    "settled": "have their verdict and cannot be read again",
}
_ADVICE: dict[LeaseEnd, str] = {
    "acked": "read before ack(), or keep what you still need with cache() or in a table",
    "returned": "read inside the block, and ack() before you leave it",
    "reaped": "start a new batch, with a longer lease_seconds if the driver sent no heartbeat for longer than that",
    "settled": "use batch.df again for the remaining rows, or keep the rows that you still need with cache() or in a "
    "table before you ack them",
}
_ROWS_PER_TASK = 10_000
_FEWEST_ROWS_PER_TASK = 2500
_TASKS_OF_A_SMALL_READ = 4


@dataclass(frozen=True, slots=True)
class Part:
    """Names some messages of one opening of a lease.

    Attributes:
        lease_id: the id of the lease.
        opening: the opening; in another opening the slots hold other messages.
        slots: the slots, ascending.
    """

    lease_id: str
    opening: str
    slots: Sequence[int]

    @classmethod
    def whole(cls, lease_id: str, opening: str, size: int) -> Part:
        """Name all messages that were claimed with a lease."""
        return cls(lease_id, opening, range(1, size + 1))

    def __len__(self) -> int:
        return len(self.slots)


@dataclass(frozen=True)
class Slice(InputPartition):
    """Names what one task reads: per part the lease, the opening and the slots as ranges."""

    parts: tuple[tuple[str, str, str], ...]


def dump(parts: Sequence[Part]) -> str:
    """Write a manifest: a whole lease as its name, opening and size, any other with a compressed bit per slot."""
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
    """Read the parts of a manifest."""
    manifest = json.loads(text)
    return [
        Part(manifest["prefix"] + name, opening, _unpack(held[0]) if held else range(1, last + 1))
        for name, opening, last, *held in manifest["leases"]
    ]


def cut(parts: Sequence[Part], partitions: int | None = None) -> list[Slice]:
    """Cut parts into slices of about the same number of messages; return at least one, as Spark requires.

    The default number of slices is one per 10,000 messages, and up to four of at least 2,500 for fewer.
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


def read_slice(spec: str, piece: Slice, advise: Advise) -> Iterator[LeasedMessages]:
    """Yield the messages of a slice in claim order, a few MiB at a time, over a new connection.

    Args:
        spec: the spec of the queue.
        piece: the slice to read.
        advise: says what to do about messages that can no longer be read.

    Raises:
        LeaseLostError: some messages are no longer in that lease; the text says which, why, and what to do.
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
        """Plan the slices from the manifest alone, without Redis."""
        return cut(load(self._options.manifest or ""), self._options.num_partitions)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read the rows of one slice."""
        assert isinstance(partition, Slice)
        for messages in read_slice(self._options.spec, partition, _ADVICE.__getitem__):
            yield from self._columns.table(messages).to_batches()


def make_reader(options: BrowseOptions, schema: StructType) -> ManifestReader:
    """Make the reader of a manifest for the schema that Spark has chosen."""
    columns = Columns.of(
        schema,
        message_columns=False,
        mode=options.mode,
        column_name_of_corrupt_record=options.column_name_of_corrupt_record,
        variants=True,
    )
    return ManifestReader(options, columns)


def _pack(slots: Sequence[int]) -> str:
    bits = bytearray(slots[-1] // 8 + 1)
    for slot in slots:
        bits[slot // 8] |= 1 << slot % 8
    return base64.b85encode(zlib.compress(bits)).decode()


def _unpack(text: str) -> list[int]:
    bits = zlib.decompress(base64.b85decode(text))
    return [at * 8 + bit for at, byte in enumerate(bits) if byte for bit in range(8) if byte >> bit & 1]


def _pages(queue: QueueConsumer, part: Part, advise: Advise) -> Iterator[LeasedMessages]:
    """Yield the messages of a part, as many at a time as one call returns; raise if one is missing."""
    wanted = list(part.slots)
    while wanted:
        seen = read_lease(queue, part.lease_id, wanted[0], wanted[-1])
        if seen.state != "open" or seen.opening != part.opening:
            raise _lost(queue, part, wanted, _end_of(part, seen), advise)
        held = seen.leased()
        page = wanted[: bisect_right(wanted, held.slots[-1])] if held else wanted
        if page != list(held.slots):  # others are missing, or not of this part
            missing = [slot for slot in page if held.position(slot) is None]
            if missing:
                raise _lost(queue, part, missing, "settled", advise)
            held = held.only(page)
        yield LeasedMessages(held)
        wanted = wanted[len(page) :]


def _end_of(part: Part, seen: LeaseView) -> LeaseEnd:
    if seen.opening != part.opening:
        return "reaped"
    return "acked" if seen.how == "acked" else "returned" if seen.how == "returned" else "reaped"


def _lost(queue: QueueConsumer, part: Part, slots: Sequence[int], end: LeaseEnd, advise: Advise) -> LeaseLostError:
    what = f"lease {part.lease_id!r} of {place_of(queue)}"
    if end == "settled":
        what = f"{len(slots)} messages of {what}"
    return LeaseLostError(f"{what} {_ENDS[end]}; {advise(end)}", lease_id=part.lease_id, lost=slots)
