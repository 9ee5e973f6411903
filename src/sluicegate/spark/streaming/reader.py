"""The streaming source as Spark calls it.

Spark makes two readers from one data source. The first lives as long as the query, in a process beside the driver, and
plans; the second is pickled once and reads on the executors: it sees nothing of what the first one knows but the
partitions. Neither can count on being told when the query stops: its process is killed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition

from sluicegate.message import Message
from sluicegate.spark._access import briefly
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
        """Stands in."""

    _SAYS_FROM_WHERE = False
else:
    _SAYS_FROM_WHERE = True

__all__ = ["StreamReader", "ZeroArgumentStreamReader", "make_reader"]


class _Reader(DataSourceStreamReader):
    """What is alike for every version of Spark."""

    def __init__(self, options: StreamOptions, schema: StructType) -> None:
        self._options = options
        self._schema = schema

    @cached_property
    def _consumer(self) -> Consumer:
        return Consumer(self._options)

    def __getstate__(self) -> dict[str, Any]:
        """Without the leases, which are the planning process's own."""
        return {"_options": self._options, "_schema": self._schema}

    def initialOffset(self) -> dict[str, Any]:
        """Where a new query begins; Spark asks twice and keeps neither answer."""
        return self._consumer.initial().to_dict()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """The tasks of a micro-batch: a replay, which comes before anything else after a restart, gets the same."""
        return self._consumer.slices(self._offset(start), self._offset(end))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The messages of one task, on an executor; changes nothing.

        Raises:
            LeaseLostError: they are not this query's any more.
            PayloadError: a payload that does not fit the declared schema.
        """
        assert isinstance(partition, Slice)
        columns = Columns.of(self._schema, message_columns=False)
        why = (
            f"either another query was started with consumer {self._options.consumer!r}, or this one was silent for "
            f"longer than leaseSeconds={self._options.lease_seconds:g}"
        )
        for found in read_slice(self._options.spec, partition, lambda _: why):
            # A replay takes the lease over, which begins a delivery; its rows are the same all the same.
            messages = [Message(message.entry, message.slot, 1) for message in found]
            yield from columns.table(messages).to_batches()

    def commit(self, end: dict[str, Any]) -> None:
        """What Spark calls done is acked, where that was not done before."""
        self._consumer.settle(self._offset(end))

    def reportLatestOffset(self) -> dict[str, Any] | None:
        """How far the query is, with the number of ready messages, for its progress reports."""
        return self._consumer.progress()

    def stop(self) -> None:
        """Called when a method raised, and when the process is not killed before it finds that the query has ended."""
        self._consumer.stop()

    def _offset(self, values: dict[str, Any]) -> Offset:
        return Offset.from_dict(values, self._options.consumer)


class StreamReader(_Reader, SupportsTriggerAvailableNow):
    """For Spark 4.2 and later, which says from where it asks."""

    def getDefaultReadLimit(self) -> ReadLimit:
        """`maxMessagesPerTrigger`."""
        from pyspark.sql.streaming.datasource import ReadMaxRows

        return ReadMaxRows(self._options.max_messages_per_trigger)

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        """Acks up to `start`, claims up to the limit, and says how far that goes."""
        with briefly():
            return self._consumer.latest(self._offset(start), getattr(limit, "max_rows", None)).to_dict()

    def prepareForTriggerAvailableNow(self) -> None:
        """Notes how many messages are ready: no more than that are claimed."""
        with briefly():
            self._consumer.prepare_available_now()


class ZeroArgumentStreamReader(_Reader):
    """For Spark 4.0 and 4.1, which ask for the latest offset without saying what is done."""

    def latestOffset(self) -> dict[str, Any]:  # type: ignore[override]
        """Claims up to `maxMessagesPerTrigger`, and says how far that goes."""
        with briefly():
            return self._consumer.latest_of_all().to_dict()


def make_reader(options: StreamOptions, schema: StructType) -> DataSourceStreamReader:
    """A reader for the Spark that is installed."""
    return StreamReader(options, schema) if _SAYS_FROM_WHERE else ZeroArgumentStreamReader(options, schema)
