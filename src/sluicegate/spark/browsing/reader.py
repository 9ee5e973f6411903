"""Browse the messages of one state; this never changes a queue, however often Spark reads."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, NamedTuple

from pyspark.sql.datasource import DataSourceReader, InputPartition

from sluicegate.consumer import QueueConsumer
from sluicegate.core.bounds import SEPARATOR
from sluicegate.core.entry import is_entry
from sluicegate.core.transitions.peek import PeekPlace, peek_operation
from sluicegate.message import CompletedMessage, DeadMessage, FailedAttempt, Message
from sluicegate.spark._access import short_traceback
from sluicegate.spark._options import BrowseOptions, BrowseState
from sluicegate.spark._place import queue_of
from sluicegate.spark.browsing.unread import Stretch, pages, plan_stretches
from sluicegate.spark.schemas import struct_of
from sluicegate.tables.columns import MESSAGE_FIELDS, PREFIX, Columns

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

__all__ = ["BrowseReader", "Window", "extra_fields", "make_reader", "messages_of", "schema_of"]

_ROWS_PER_TASK = 10_000
_MAX_TASKS = 200
_FIRST_PAGE = 50
_MAX_PER_PAGE = 2000
_PAGE_BYTES = 4 * 1024 * 1024

_EPOCH = datetime.fromtimestamp(0, UTC)
_TEXT, _TIME = "string", "timestamp"
_EXTRA: dict[str, dict[str, str]] = {
    "dead": {"reason": _TEXT, "error_type": _TEXT, "error": _TEXT, "buried_at": _TIME},
    "completed": {"completed_at": _TIME},
    "failed": {"error_type": _TEXT, "error": _TEXT, "verb": _TEXT, "failed_at": _TIME},
}


class _Row(NamedTuple):
    """Holds one message with the values that its state adds."""

    message: Message
    extra: tuple[str | datetime, ...] = ()


@dataclass(frozen=True)
class Window(InputPartition):
    """Names what one task reads: messages by their position, the next to be claimed first."""

    offset: int
    count: int


def extra_fields(state: str) -> dict[str, str]:
    """Return the columns, with their types, that a state adds to those of a message."""
    return _EXTRA.get(state.lower(), {})


def schema_of(state: str) -> StructType:
    """Return the columns of a state: those of a message, and those that the state adds."""
    schema = struct_of(Columns.of(None))
    for name, kind in extra_fields(state).items():
        schema = schema.add(name, kind, True)
    return schema


class BrowseReader(DataSourceReader):
    """Reads messages by their position; Spark pickles it with every task.

    A message that moves between two pages shifts the others: while consumers claim, a read may miss a message or show
    one twice. A second action reads again. What a group of a stream has not been delivered is read by ids instead,
    which nothing shifts.
    """

    def __init__(self, options: BrowseOptions, schema: StructType) -> None:
        from pyspark.sql.types import StructType

        self._options = options
        own = extra_fields(options.state)
        plain = [field for field in schema.fields if field.name not in own]
        prefix = "" if tuple(field.name for field in plain) == MESSAGE_FIELDS else PREFIX
        self._extra = {prefix + name: at for at, name in enumerate(own)}
        self._order = tuple(field.name for field in schema.fields)
        rest = [field for field in schema.fields if field.name not in self._extra]
        self._columns = Columns.of(
            StructType(rest),
            message_columns=False,
            mode=options.mode,
            column_name_of_corrupt_record=options.column_name_of_corrupt_record,
            variants=True,
        )
        self._kinds = {prefix + name: kind for name, kind in own.items()}

    def partitions(self) -> Sequence[InputPartition]:
        """Plan parts of the current messages, up to the limit; the last part also shows later messages."""
        queue = queue_of(self._options.spec)
        try:
            with short_traceback():
                return self._plan(queue)
        finally:
            queue.close()

    def _plan(self, queue: QueueConsumer) -> Sequence[InputPartition]:
        state, limit = self._options.state, self._options.limit
        count = min(_size(queue, state), limit)
        tasks = self._options.num_partitions or min(_MAX_TASKS, math.ceil(count / _ROWS_PER_TASK))
        size = max(1, math.ceil(count / max(1, tasks)))
        starts = range(0, max(1, count), size)
        if state == "pending" and queue.group_name is not None:
            return plan_stretches(queue, size, len(starts), limit)
        ends = [*starts[1:], limit]
        return [Window(start, end - start) for start, end in zip(starts, ends, strict=True)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read the rows of one window."""
        queue = queue_of(self._options.spec)
        try:
            for rows in _rows(queue, self._options.state, partition):
                yield from self._table(rows).to_batches()
        finally:
            queue.close()

    def _table(self, rows: Sequence[_Row]) -> pa.Table:
        import pyarrow as pa

        table = self._columns.table([row.message for row in rows])
        if not self._extra:
            return table
        types = {"string": pa.string(), "timestamp": pa.timestamp("us", "UTC")}
        for name, at in self._extra.items():
            if name in self._order:
                values = pa.array([row.extra[at] for row in rows], types[self._kinds[name]])
                table = table.append_column(pa.field(name, values.type), values)
        return table.select(self._order)


def make_reader(options: BrowseOptions, schema: StructType) -> BrowseReader:
    """Make the reader of a state for the schema that Spark has chosen."""
    return BrowseReader(options, schema)


def messages_of(queue: QueueConsumer, state: BrowseState, limit: int) -> Iterator[list[Message]]:
    """Yield the first messages of a state, page by page; those of other libraries are payloads without an id."""
    if state == "pending" and queue.group_name is not None:
        (partition,) = plan_stretches(queue, limit, 1, limit)
        return pages(queue, partition)
    return ([row.message for row in rows] for rows in _pages(queue, state, Window(0, limit)))


def _size(queue: QueueConsumer, state: str) -> int:
    """Count the messages of a state; a history has no counter, so search for its end."""
    if state not in ("completed", "failed"):
        return int(getattr(queue.depth(), state))
    low, high = 0, 1
    while _peek(queue, state, 1, high - 1):
        low, high = high, high * 2
    while high - low > 1:  # records below `low` exist, none at `high - 1` does
        middle = (low + high) // 2
        low, high = (middle, high) if _peek(queue, state, 1, middle - 1) else (low, middle)
    return low


def _rows(queue: QueueConsumer, state: str, partition: InputPartition) -> Iterator[list[_Row]]:
    if isinstance(partition, Stretch):
        return ([_Row(message) for message in page] for page in pages(queue, partition))
    assert isinstance(partition, Window)
    return _pages(queue, state, partition)


def _pages(queue: QueueConsumer, state: str, window: Window) -> Iterator[list[_Row]]:
    """Yield a window page by page, each of about 4 MiB judging by the pages before."""
    offset, end, most, place = window.offset, window.offset + window.count, _FIRST_PAGE, PeekPlace()
    while offset < end:
        asked = min(most, end - offset)
        rows = _peek(queue, state, asked, offset, place)
        if not rows:
            return
        yield rows
        offset += asked
        mean = sum(row.message.size for row in rows) / len(rows)
        most = max(1, min(_MAX_PER_PAGE, int(_PAGE_BYTES / mean)))


def _peek(queue: QueueConsumer, state: str, count: int, offset: int, place: PeekPlace | None = None) -> list[_Row]:
    if state == "pending" and place is not None:  # each page knows where the last one ended, as offsets do not
        entries = peek_operation(queue.session.keys, state, count, offset=offset, place=place)
        return [_row(Message(entry)) for entry in queue.session.runner.run(entries)]
    seen: list[Any] = queue.peek(count, state=state, offset=offset)  # type: ignore[call-overload]
    return [_row(one) for one in seen]


def _row(seen: Message | DeadMessage | CompletedMessage | FailedAttempt) -> _Row:
    if isinstance(seen, DeadMessage):
        message = seen.message or _row_message(seen.value, seen.buried_at)
        return _Row(message, (seen.reason, seen.error_type, seen.error, seen.buried_at))
    if isinstance(seen, CompletedMessage):
        return _Row(seen.message, (seen.completed_at,))
    if isinstance(seen, FailedAttempt):
        return _Row(seen.message, (seen.error_type, seen.error, seen.verb, seen.failed_at))
    return _Row(seen if is_entry(seen.entry) else _row_message(seen.entry, _EPOCH))


def _row_message(value: bytes, at: datetime) -> Message:
    """Return a row for a value that is not a Sluicegate message: no id, and the whole value as its payload."""
    return Message(b"1%012x%012x0000" % (0, int(at.timestamp() * 1000)) + 3 * SEPARATOR + value)
