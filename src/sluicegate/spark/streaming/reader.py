"""Implement the streaming source that Spark calls.

Spark makes two readers from one data source. The first lives as long as the query, in a process beside the driver, and
plans. The second is pickled once and reads on the executors; of the first reader's state it receives only the
partitions. Spark kills the first reader's process when the query stops, so neither can rely on `stop()`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition

from sluicegate.core.leased import LeasedEntries
from sluicegate.leased_messages import LeasedMessages
from sluicegate.spark._access import short_traceback
from sluicegate.spark._options import StreamOptions
from sluicegate.spark.leasing.manifest import Slice, read_slice
from sluicegate.spark.streaming.consumer import Consumer
from sluicegate.spark.streaming.microbatch import Offset
from sluicegate.tables.columns import Columns

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.streaming.datasource import ReadLimit
    from pyspark.sql.types import StructType

try:
    from pyspark.sql.streaming.datasource import SupportsTriggerAvailableNow
except ImportError:  # before Spark 4.2, which then stops at the first answer by itself

    class SupportsTriggerAvailableNow:  # type: ignore[no-redef]
        """Replaces the missing base class."""

    _PASSES_START = False
else:
    _PASSES_START = True

__all__ = ["StreamReader", "ZeroArgumentStreamReader", "make_reader"]


class _Reader(DataSourceStreamReader):
    """Implements the parts that are the same for every version of Spark."""

    def __init__(self, options: StreamOptions, schema: StructType) -> None:
        self._options = options
        self._schema = schema

    @cached_property
    def _consumer(self) -> Consumer:
        return Consumer(self._options, self._columns())

    def __getstate__(self) -> dict[str, Any]:
        """Leave the leases out: they belong to the planning process."""
        return {"_options": self._options, "_schema": self._schema}

    def initialOffset(self) -> dict[str, Any]:
        """Return where a new query begins; Spark asks twice and keeps neither answer."""
        return self._consumer.initial().to_dict()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """Plan the tasks of a micro-batch; the replay after a restart, which is the first call, gets the same tasks."""
        return self._consumer.slices(self._offset(start), self._offset(end))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read the messages of one task on an executor, without changing anything.

        Raises:
            LeaseLostError: the messages are no longer leased to this query.
            PayloadError: a payload that does not fit the declared schema.
        """
        assert isinstance(partition, Slice)
        columns = self._columns()
        why = (
            f"either another query was started with consumer {self._options.consumer!r}, or this one was silent for "
            f"longer than leaseSeconds={self._options.lease_seconds:g}"
        )
        for found in read_slice(self._options.spec, partition, lambda _: why):
            # A replay takes the lease over, which begins another delivery; its rows must be the same nevertheless.
            again = LeasedEntries(found.stored.entries(), found.stored.slots, 1)
            yield from columns.table(LeasedMessages(again)).to_batches()

    def commit(self, end: dict[str, Any]) -> None:
        """Ack the micro-batches up to `end`, unless they are acked already."""
        self._consumer.settle(self._offset(end))

    def reportLatestOffset(self) -> dict[str, Any] | None:
        """Return the latest offset and the number of ready messages, for Spark's progress reports."""
        return self._consumer.progress()

    def stop(self) -> None:
        """Stop the heartbeats. Spark calls this after an error, and rarely at the end: it usually kills the process."""
        self._consumer.stop()

    def _columns(self) -> Columns:
        return Columns.of(
            self._schema,
            message_columns=False,
            mode=self._options.mode,
            column_name_of_corrupt_record=self._options.column_name_of_corrupt_record,
            variants=True,
        )

    def _offset(self, values: dict[str, Any]) -> Offset:
        return Offset.from_dict(values, self._options.consumer)


class StreamReader(_Reader, SupportsTriggerAvailableNow):
    """Reads for Spark 4.2 and later, which passes the offset from which it asks."""

    def getDefaultReadLimit(self) -> ReadLimit:
        """Return the limit of `maxMessagesPerTrigger`."""
        from pyspark.sql.streaming.datasource import ReadMaxRows

        return ReadMaxRows(self._options.max_messages_per_trigger)

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        """Ack the messages up to `start`, claim up to the limit, and return the new end."""
        with short_traceback():
            return self._consumer.latest(self._offset(start), getattr(limit, "max_rows", None)).to_dict()

    def prepareForTriggerAvailableNow(self) -> None:
        """Count the ready messages: the query claims no more than these."""
        with short_traceback():
            self._consumer.prepare_available_now()


class ZeroArgumentStreamReader(_Reader):
    """Reads for Spark 4.0 and 4.1, which ask for the latest offset without saying what is done."""

    def latestOffset(self) -> dict[str, Any]:  # type: ignore[override]
        """Claim up to `maxMessagesPerTrigger` messages, and return the new end."""
        with short_traceback():
            return self._consumer.latest_of_all().to_dict()


def make_reader(options: StreamOptions, schema: StructType) -> DataSourceStreamReader:
    """Make a reader for the installed version of Spark."""
    return StreamReader(options, schema) if _PASSES_START else ZeroArgumentStreamReader(options, schema)
