"""Implement `df.write` and `df.writeStream`: each row becomes one message, however often Spark runs a task.

A retried task, a speculative attempt and a replayed micro-batch send the same rows again. Redis recognizes them by the
deduplication keys of the rows, or by markers made of the write's id, the partition and the row.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import TYPE_CHECKING, Any, cast

from pyspark.sql import datasource as _datasource
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamWriter, WriterCommitMessage
from pyspark.taskcontext import TaskContext

from sluicegate.errors import ConfigurationError
from sluicegate.log_lines import log_line
from sluicegate.spark._access import short_traceback
from sluicegate.spark._options import WriteOptions
from sluicegate.spark.writing import staging
from sluicegate.spark.writing.plan import WritePlan, Written, plan_write

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

__all__ = ["BatchWriter", "StreamWriter", "make_stream_writer", "make_writer"]

_ROWS_TO_ARROW = 10_000
_QUERY, _BATCH = "sql.streaming.queryId", "streaming.sql.batchId"
_StreamBase: Any = getattr(_datasource, "DataSourceStreamArrowWriter", DataSourceStreamWriter)  # not before PySpark 4.1


@dataclass(frozen=True, slots=True)
class Report(WriterCommitMessage):
    """Carries a task's counts to the driver.

    Attributes:
        written: the counts of the task.
    """

    written: Written


Messages = Sequence[WriterCommitMessage | None]


def make_writer(options: WriteOptions, schema: StructType, overwrite: bool) -> BatchWriter:
    """Make the writer of `df.write`.

    Raises:
        ConfigurationError: options or columns cannot work together; raised before any row is read.
        RedisUnavailableError: Redis cannot be reached from here; raised before any row is read.
    """
    plan = plan_write(options, schema, overwrite)
    with short_traceback():
        plan.check_reachable()
    return BatchWriter(plan, options.write_id or uuid.uuid4().hex)


def make_stream_writer(options: WriteOptions, schema: StructType, overwrite: bool) -> StreamWriter:
    """Make the writer of one micro-batch of `df.writeStream`.

    Raises:
        ConfigurationError: options or columns cannot work together. Redis is not contacted before the tasks do so.
    """
    if options.write_key == "content":
        raise ConfigurationError(
            "writeKey=content needs rows that are numbered before the write, which Spark cannot do for a stream; write "
            "with foreachBatch and content_keys(batch)"
        )
    return StreamWriter(plan_write(options, schema, overwrite), schema, options.write_id)


class BatchWriter(DataSourceArrowWriter):
    """Writes once; Spark pickles the same object for the tasks and for the commit.

    Args:
        plan: describes what the tasks do.
        write_id: the id of the write, the same for all attempts of all tasks.
    """

    def __init__(self, plan: WritePlan, write_id: str) -> None:
        self._plan = plan
        self._write_id = write_id

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Report:
        """Publish or stage the rows of one partition."""
        return Report(self._plan.write(iterator, _partition(), self._write_id))

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Publish the staged rows, and log the counts."""
        _commit(self._plan, self._write_id, messages)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Drop the staged rows, and log what stays published."""
        _abort(self._plan, self._write_id, messages, again=self._plan.options.write_id is not None)


class StreamWriter(_StreamBase):  # type: ignore[misc]
    """Writes one micro-batch; a second object commits it, possibly again after a restart.

    Args:
        plan: describes what the tasks do.
        schema: the schema of the rows.
        write_id: part of the names of micro-batches, beside the query's id.
    """

    def __init__(self, plan: WritePlan, schema: StructType, write_id: str | None) -> None:
        self._plan = plan
        self._schema = schema
        self._write_id = write_id

    def write(self, iterator: Iterator[Any]) -> Report:
        """Publish or stage the rows of one partition of one micro-batch."""
        batches = iterator if isinstance(self, _ARROW_WRITERS) else _to_arrow(iterator, self._schema)
        return Report(self._plan.write(batches, _partition(), self._name_batch()))

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Publish the staged rows of a micro-batch, each once however often it is committed."""
        _commit(self._plan, _write_id_of(messages, batchId), messages)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Drop the staged rows of a micro-batch; Spark repeats it when the query is started again."""
        _abort(self._plan, _write_id_of(messages, batchId), messages)

    def _name_batch(self) -> str:
        """Name the micro-batch by the query's id, which a new checkpoint changes.

        A new checkpoint numbers its batches from 0 again; under the same name they would look like repeats.
        """
        context = TaskContext.get()
        batch = context.getLocalProperty(_BATCH) if context is not None else None
        query = context.getLocalProperty(_QUERY) if context is not None else None
        if not batch or not query:
            raise ConfigurationError(
                "Spark does not say which micro-batch this is, so a replay would look like new rows; write "
                "with foreachBatch and a batch write whose option writeId holds the query's name and the batch's number"
            )
        return f"{self._write_id}:{query}:{batch}" if self._write_id else f"{query}:{batch}"


_ARROW_WRITERS: tuple[type, ...] = () if _StreamBase is DataSourceStreamWriter else (_StreamBase,)


def _partition() -> int:
    context = TaskContext.get()
    if context is None:
        raise RuntimeError("write() runs only in a task of Spark, which says which partition this is")
    return context.partitionId()


def _to_arrow(rows: Iterator[Any], schema: StructType) -> Iterator[pa.RecordBatch]:
    """Turn Spark's rows into Arrow batches, for a PySpark that does not give Arrow to streams."""
    try:
        from pyspark.sql.conversion import LocalDataToArrowConversion
    except ImportError:
        from pyspark.sql.connect.conversion import LocalDataToArrowConversion  # type: ignore[attr-defined,no-redef]

    while chunk := list(islice(rows, _ROWS_TO_ARROW)):
        yield from LocalDataToArrowConversion.convert(chunk, schema, False).to_batches()


# ---------------------------------------------------------------------- the driver's side


@dataclass(slots=True)
class _Total:
    """Sums the counts of the tasks of a write."""

    rows: int = 0
    published: int = 0
    duplicates: int = 0
    tasks: int = 0
    stages: list[staging.Stage] = field(default_factory=list)
    repeated: bool = False

    @classmethod
    def of(cls, messages: Messages) -> _Total:
        total = cls()
        for message in _written(messages):
            total.tasks += 1
            total.rows += message.rows
            total.published += message.published
            total.duplicates += message.duplicates
            total.repeated = total.repeated or message.repeated
            if message.stage is not None:
                total.stages.append(message.stage)
        return total


def _commit(plan: WritePlan, write_id: str, messages: Messages) -> None:
    total = _Total.of(messages)
    if plan.staged and messages:
        sender = plan.sender()
        try:
            promoted = staging.commit(sender, write_id, total.stages)
        finally:
            sender.close()
        total.published, total.duplicates = promoted.published, promoted.duplicates
        total.repeated = total.repeated or promoted.repeated
    again = "; it was done before, and nothing was published again" if total.repeated else ""
    log_line(
        logging.INFO,
        f"write {write_id!r} to {plan.place}: {total.rows} rows of {total.tasks} tasks, "
        f"{total.published} published, {total.duplicates} duplicates{again}",
    )


def _abort(plan: WritePlan, write_id: str, messages: Messages, *, again: bool = True) -> None:
    total = _Total.of(messages)
    where = f"write {write_id!r} to {plan.place} failed"
    if not plan.staged:
        log_line(
            logging.WARNING,
            f"{where}: {total.published} messages of {total.tasks} finished tasks stay published, and what the others "
            "had published; the same write under the same writeId or the same deduplication keys completes it",
        )
        return
    sender = plan.sender()
    try:
        dropped = staging.abort(sender, write_id, total.stages, again=again)
    finally:
        sender.close()
    log_line(logging.WARNING, f"{where}: {dropped}")


def _write_id_of(messages: Messages, batch_id: int) -> str:
    """Return the id under which the tasks wrote; only they know the query's id."""
    return next((written.write_id for written in _written(messages)), f"batch {batch_id}")


def _written(messages: Messages) -> list[Written]:
    """Return the counts of the tasks that have ended."""
    return [message.written for message in cast("Sequence[Report | None]", messages) if message is not None]
