"""`df.write` and `df.writeStream`: rows become messages, each once, however often Spark runs a task.

A task that is retried, a speculative twin and a micro-batch that is replayed send the same rows again. Deduplication
keys of the rows, or markers made of the write's id, the partition and the row, tell Redis which it has already.
"""

from __future__ import annotations

import logging
import sys
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, cast

from pyspark.sql import datasource as _datasource
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamWriter, WriterCommitMessage
from pyspark.taskcontext import TaskContext

from sluicegate.config import QueueSpec
from sluicegate.errors import ConfigurationError
from sluicegate.queue import RedisMessageQueue
from sluicegate.spark import _staging
from sluicegate.spark._naming import RowNames
from sluicegate.spark._options import WriteOptions
from sluicegate.spark._rows import RowPlan, plan_rows
from sluicegate.spark._sending import Sender

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

    from sluicegate.core.values import Batch

__all__ = ["Written", "make_stream_writer", "make_writer"]

_log = logging.getLogger("sluicegate")
_MOST_BYTES = 8 * 1024 * 1024  # of one call, about
_BLOCK_SECONDS = 60.0
_ROWS_TO_ARROW = 10_000
_QUERY, _BATCH = "sql.streaming.queryId", "streaming.sql.batchId"
_CHECKPOINT = "checkpointlocation"
_StreamBase: Any = getattr(_datasource, "DataSourceStreamArrowWriter", DataSourceStreamWriter)  # not before PySpark 4.1


@dataclass(slots=True)
class Written(WriterCommitMessage):
    """What one task did; its message to the driver.

    Attributes:
        write_id: of the write.
        partition: of the task.
        rows: that it was given.
        published: messages that were published.
        duplicates: rows whose key was held, also by an earlier attempt of the same task.
        stage: what it has staged, None in direct mode.
        repeated: the write was done before, so the rows were only counted.
    """

    write_id: str
    partition: int
    rows: int = 0
    published: int = 0
    duplicates: int = 0
    stage: _staging.Stage | None = None
    repeated: bool = False


@dataclass(frozen=True, slots=True)
class WritePlan:
    """What the tasks of a write do. A plain value, made on the driver.

    Attributes:
        options: of the write.
        spec: of the queue, with what the options change.
        rows: from columns to messages.
    """

    options: WriteOptions
    spec: str
    rows: RowPlan

    @property
    def staged(self) -> bool:
        """Whether the driver publishes, at the end."""
        return self.options.mode == "staged"

    def sender(self) -> Sender:
        """A connection of its own, in whichever process."""
        return Sender(RedisMessageQueue.from_spec(QueueSpec.from_json(self.spec)), bound=self.rows.keyed)

    def write(self, batches: Iterable[pa.RecordBatch], partition: int, write_id: str) -> Written:
        """One attempt of one task.

        Raises:
            Exception: whatever stops it, with a note of what it has published by then.
        """
        done = Written(write_id, partition)
        sender = self.sender()
        try:
            if self.staged:
                self._stage(sender, batches, done)
            else:
                self._publish(sender, batches, done)
        except Exception as error:
            error.add_note(_what_was_done(done, self.staged))
            raise
        finally:
            sender.close()
        return done

    def _publish(self, sender: Sender, batches: Iterable[pa.RecordBatch], done: Written) -> None:
        for report in sender.send(self._calls(sender, batches, done)):
            done.published += report.accepted
            done.duplicates += report.duplicates

    def _calls(self, sender: Sender, batches: Iterable[pa.RecordBatch], done: Written) -> Iterator[Batch]:
        """One call's worth after the other; they are sent as they come."""
        names = RowNames(sender.keys, done.write_id, done.partition)
        for parts, keys in self._chunks(sender, batches):
            done.rows += len(parts)
            markers = names.markers(parts) if keys is None else [sender.keys.dedup(key) for key in keys]
            yield sender.batch(parts, markers)

    def _stage(self, sender: Sender, batches: Iterable[pa.RecordBatch], done: Written) -> None:
        if _staging.is_done(sender, done.write_id):
            done.repeated = True
            done.rows = sum(batch.num_rows for batch in batches)  # Spark sends them to the end in any case
            return
        writer = _staging.StageWriter(sender, done.write_id, done.partition)
        for parts, _ in self._chunks(sender, batches):
            writer.append(parts)
            done.rows += len(parts)
        done.stage = writer.stage()

    def _chunks(
        self, sender: Sender, batches: Iterable[pa.RecordBatch]
    ) -> Iterator[tuple[list[bytes], list[bytes] | None]]:
        """The rows as parts and keys: as many at a time as a call may carry."""
        size = min(self.options.batch_size, sender.most_waiting or self.options.batch_size)
        for batch in batches:
            for start in range(0, batch.num_rows, size):
                rows = self.rows.rows(batch.slice(start, size))
                sender.check(rows.payloads)
                parts, keys = rows.parts(), rows.keys
                for first, last in _by_bytes(parts):
                    yield parts[first:last], None if keys is None else keys[first:last]


def make_writer(options: WriteOptions, schema: StructType, overwrite: bool) -> BatchWriter:
    """What `df.write` publishes with.

    Raises:
        ConfigurationError: options or columns that cannot work together, before any row is read.
    """
    return BatchWriter(_plan(options, schema, overwrite), options.write_id or uuid.uuid4().hex)


def make_stream_writer(
    options: WriteOptions, schema: StructType, overwrite: bool, raw: Mapping[str, str]
) -> StreamWriter:
    """What `df.writeStream` publishes with. Raises as `make_writer`.

    Args:
        options: parsed.
        schema: of the rows.
        overwrite: whether each micro-batch would replace the earlier ones.
        raw: the options as Spark gives them, among them where the checkpoint is.
    """
    place = {name.lower(): text for name, text in raw.items()}.get(_CHECKPOINT)
    return StreamWriter(_plan(options, schema, overwrite), schema, options.write_id, place)


class BatchWriter(DataSourceArrowWriter):
    """One write: the same object, pickled, in its tasks and where it commits.

    Args:
        plan: what to do.
        write_id: of the write, the same for all attempts of all tasks.
    """

    def __init__(self, plan: WritePlan, write_id: str) -> None:
        self._plan = plan
        self._write_id = write_id

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        """Publish or stage the rows of one partition."""
        return self._plan.write(iterator, _partition(), self._write_id)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Publish what was staged, and say what was done."""
        _commit(self._plan, self._write_id, messages)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Drop what was staged, and say what stays published."""
        _abort(self._plan, self._write_id, messages, again=self._plan.options.write_id is not None)


class StreamWriter(_StreamBase):  # type: ignore[misc]
    """One micro-batch: a fresh object writes each, and another fresh one commits it, perhaps again after a restart.

    Args:
        plan: what to do.
        schema: of the rows.
        write_id: what to name micro-batches by; None: the query's id.
        place: of the checkpoint, for a query whose id nobody tells.
    """

    def __init__(self, plan: WritePlan, schema: StructType, write_id: str | None, place: str | None) -> None:
        self._plan = plan
        self._schema = schema
        self._write_id = write_id
        self._place = place

    def write(self, iterator: Iterator[Any]) -> Written:
        """Publish or stage the rows of one partition of one micro-batch."""
        batches = iterator if isinstance(self, _ARROW_WRITERS) else _to_arrow(iterator, self._schema)
        return self._plan.write(batches, _partition(), self._name_batch())

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803  (Spark's name)
        """Publish what was staged in a micro-batch, once however often it is committed."""
        _commit(self._plan, _write_id_of(messages, batchId), messages)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803  (Spark's name)
        """Drop what was staged in a micro-batch; Spark runs it again when the query is started again."""
        _abort(self._plan, _write_id_of(messages, batchId), messages)

    def _name_batch(self) -> str:
        context = TaskContext.get()
        batch = context.getLocalProperty(_BATCH) if context is not None else None
        query = context.getLocalProperty(_QUERY) if context is not None else None
        name = self._write_id or query or self._place
        if batch is None or name is None:
            raise ConfigurationError(
                "Spark does not say which micro-batch this is, so that a replay could not be told from new rows; write "
                "with foreachBatch and a batch write whose option writeId holds the query's name and the batch's number"
            )
        return f"{name}:{batch}"


_ARROW_WRITERS: tuple[type, ...] = () if _StreamBase is DataSourceStreamWriter else (_StreamBase,)


def _partition() -> int:
    context = TaskContext.get()
    if context is None:
        raise RuntimeError("write() runs in a task of Spark only: without one nobody says which partition this is")
    return context.partitionId()


# ---------------------------------------------------------------------- plan


def _plan(options: WriteOptions, schema: StructType, overwrite: bool) -> WritePlan:
    if overwrite:
        raise ConfigurationError(
            "a queue cannot be overwritten; write with mode('append') or outputMode('append'), and empty it with "
            "queue.purge('pending') where you mean to"
        )
    spec = QueueSpec.from_json(options.spec)
    changed = dict(spec.options)
    source = changed.get("get_deduplication_key")
    chosen = options.key_template is not None or options.key_column is not None
    if not changed.pop("publishes", True) and not chosen:
        raise ConfigurationError(
            f"the deduplication key of queue {spec.name!r} is a function, which cannot travel in its spec; give the "
            "option deduplicationKey (a template over the row) or deduplicationKeyColumn"
        )
    changed |= _overload(options)
    if options.window_seconds is not None:
        changed["deduplication_window_seconds"] = options.window_seconds
    keyed = chosen or source is not None
    if keyed and changed.get("deduplication_policy") == "until_acked" and options.mode == "direct":
        raise ConfigurationError(
            f"queue {spec.name!r} frees deduplication keys on ack, so that a retried task would publish again what was "
            "acked meanwhile; write with writeMode=staged"
        )
    if keyed and changed.get("pending_overload_policy") == "drop_oldest":
        raise ConfigurationError(
            f"queue {spec.name!r} drops its oldest messages when it is full, and the key of a dropped one would refuse "
            "its successors; give the option overload=raise or overload=block, or no deduplication key"
        )
    rows = plan_rows(
        schema,
        payload=options.payload_column,
        headers=options.headers_column,
        key_column=options.key_column,
        key_source=options.key_template if chosen else source,
    )
    adapted = replace(spec, options=changed)
    RedisMessageQueue.from_spec(adapted)  # which refuses options that cannot work together
    return WritePlan(options, adapted.to_json(), rows)


def _overload(options: WriteOptions) -> dict[str, Any]:
    """What the options change about a full queue."""
    changed: dict[str, Any] = {}
    if options.most_waiting is not None:
        changed["max_pending_length"] = options.most_waiting
    if options.overload is not None:
        changed["pending_overload_policy"] = options.overload
    if options.block_seconds is not None or options.overload == "block":
        seconds = _BLOCK_SECONDS if options.block_seconds is None else options.block_seconds
        changed["pending_overload_block_timeout_seconds"] = seconds
    return changed


# ---------------------------------------------------------------------- rows


def _by_bytes(parts: Sequence[bytes]) -> Iterator[tuple[int, int]]:
    """Ranges of parts that fit into a call each; one that is too large goes alone."""
    first, held = 0, 0
    if sum(map(len, parts)) > _MOST_BYTES:
        for at, part in enumerate(parts):
            if held and held + len(part) > _MOST_BYTES:
                yield first, at
                first, held = at, 0
            held += len(part)
    if parts:
        yield first, len(parts)


def _to_arrow(rows: Iterator[Any], schema: StructType) -> Iterator[pa.RecordBatch]:
    """Rows of Spark as Arrow batches, for a PySpark that gives streams no Arrow."""
    from itertools import islice

    try:
        from pyspark.sql.conversion import LocalDataToArrowConversion
    except ImportError:
        from pyspark.sql.connect.conversion import LocalDataToArrowConversion  # type: ignore[attr-defined,no-redef]

    while chunk := list(islice(rows, _ROWS_TO_ARROW)):
        yield from LocalDataToArrowConversion.convert(chunk, schema, False).to_batches()


# ---------------------------------------------------------------------- the driver's side


@dataclass(slots=True)
class _Total:
    """Sums over the tasks of a write."""

    rows: int = 0
    published: int = 0
    duplicates: int = 0
    tasks: int = 0
    stages: list[_staging.Stage] = field(default_factory=list)
    repeated: bool = False

    @classmethod
    def of(cls, messages: Sequence[WriterCommitMessage | None]) -> _Total:
        total = cls()
        for message in cast("Sequence[Written | None]", messages):
            if message is None:
                continue
            total.tasks += 1
            total.rows += message.rows
            total.published += message.published
            total.duplicates += message.duplicates
            total.repeated = total.repeated or message.repeated
            if message.stage is not None:
                total.stages.append(message.stage)
        return total


def _commit(plan: WritePlan, write_id: str, messages: Sequence[WriterCommitMessage | None]) -> None:
    total = _Total.of(messages)
    if plan.staged and messages:
        sender = plan.sender()
        try:
            promoted = _staging.commit(sender, write_id, total.stages)
        finally:
            sender.close()
        total.published, total.duplicates = promoted.published, promoted.duplicates
        total.repeated = total.repeated or promoted.repeated
    again = "; it was done before, and nothing was published again" if total.repeated else ""
    _say(
        logging.INFO,
        f"write {write_id!r} to queue {_queue_name(plan)!r}: {total.rows} rows of {total.tasks} tasks, "
        f"{total.published} published, {total.duplicates} duplicates{again}",
    )


def _abort(
    plan: WritePlan, write_id: str, messages: Sequence[WriterCommitMessage | None], *, again: bool = True
) -> None:
    total = _Total.of(messages)
    where = f"write {write_id!r} to queue {_queue_name(plan)!r} failed"
    if not plan.staged:
        _say(
            logging.WARNING,
            f"{where}: {total.published} messages of {total.tasks} finished tasks stay published, and what the others "
            "had published; the same write under the same writeId or the same deduplication keys completes it",
        )
        return
    sender = plan.sender()
    try:
        dropped = _staging.abort(sender, write_id, total.stages, again=again)
    finally:
        sender.close()
    _say(logging.WARNING, f"{where}: {dropped}")


def _write_id_of(messages: Sequence[WriterCommitMessage | None], batch_id: int) -> str:
    """The id under which the tasks wrote: only they know the query's."""
    return next((cast("Written", message).write_id for message in messages if message is not None), f"batch {batch_id}")


def _what_was_done(done: Written, staged: bool) -> str:
    what = f"{done.rows} rows staged" if staged else f"{done.published} messages published, {done.duplicates} duplicates"
    stay = "nothing of it is published" if staged else "they stay published, and a retry repeats none of them"
    return f"write {done.write_id!r}, partition {done.partition}: {what} before this error; {stay}"


def _queue_name(plan: WritePlan) -> str:
    return QueueSpec.from_json(plan.spec).name


def _say(level: int, line: str) -> None:
    """Log a line; where nobody has set logging up, as in Spark's own processes, to stderr, which ends in its logs."""
    _log.log(level, "%s", line)
    if not _log.hasHandlers() and level < logging.WARNING:
        print(line, file=sys.stderr)
