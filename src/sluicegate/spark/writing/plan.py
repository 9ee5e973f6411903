"""Plan a write, and run it in a task: turn rows into messages and publish or stage them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from sluicegate.config import QueueSpec
from sluicegate.core.publishing import call_ranges
from sluicegate.errors import ConfigurationError
from sluicegate.place import Place
from sluicegate.spark._options import WriteOptions
from sluicegate.spark._place import place_of, publisher_of
from sluicegate.spark.writing import staging
from sluicegate.spark.writing.content import CONTENT_KEY, keys_of_contents
from sluicegate.spark.writing.naming import RowNames
from sluicegate.spark.writing.rows import RowPlan, plan_rows
from sluicegate.spark.writing.sending import Sender
from sluicegate.tables.rows import cut

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

    from sluicegate.core.transitions.publish import Batch

__all__ = ["WritePlan", "Written", "plan_write"]

_BLOCK_SECONDS = 60.0
_ROWS_TOGETHER = 3000
"""Rows that are encoded together: their columns cost the less, the more there are."""


@dataclass(slots=True)
class Written:
    """Counts what one task did.

    Attributes:
        write_id: the id of the write.
        partition: the partition of the task.
        rows: rows of the partition.
        published: messages that the task published.
        duplicates: rows whose key was held, also by an earlier attempt of the same task.
        stage: the staged rows, None in direct mode.
        repeated: whether the write was done before, so that the rows were only counted.
    """

    write_id: str
    partition: int
    rows: int = 0
    published: int = 0
    duplicates: int = 0
    stage: staging.Stage | None = None
    repeated: bool = False


@dataclass(frozen=True, slots=True)
class WritePlan:
    """Describes what the tasks of a write do; a plain value, made on the driver.

    Attributes:
        options: the options of the write.
        spec: the spec of the queue, with the changes of the options.
        rows: turns columns into messages.
        content_at: the position of the column that names rows by their content; None where there is none.
    """

    options: WriteOptions
    spec: str
    rows: RowPlan
    content_at: int | None = None

    @property
    def place(self) -> Place:
        """Return what the write publishes to; as text it is what a log line says."""
        return place_of(QueueSpec.from_json(self.spec))

    @property
    def staged(self) -> bool:
        """Return whether the driver publishes everything at the end."""
        return self.options.write_mode == "staged"

    @property
    def by_content(self) -> bool:
        """Return whether rows are recognized by their numbered content."""
        return self.options.write_key == "content"

    def sender(self) -> Sender:
        """Open a new connection in this process."""
        return Sender(publisher_of(QueueSpec.from_json(self.spec)), bound=self.rows.keyed)

    def check_reachable(self) -> None:
        """Read a depth over a new connection, as every task opens one: if that fails, so would every task.

        Raises:
            RedisUnavailableError: Redis cannot be reached.
        """
        target = publisher_of(QueueSpec.from_json(self.spec))
        try:
            target.depth()
        finally:
            target.close()

    def write(self, batches: Iterable[pa.RecordBatch], partition: int, write_id: str) -> Written:
        """Run one attempt of one task.

        Raises:
            Exception: the error that stops it, with a note of what it has published by then.
        """
        done = Written(write_id, partition)
        sender = self.sender()
        try:
            if self.staged:
                self._stage(sender, batches, done)
            else:
                self._publish(sender, batches, done)
        except Exception as error:
            error.add_note(_progress_note(done, self.staged))
            raise
        finally:
            sender.close()
        return done

    def _publish(self, sender: Sender, batches: Iterable[pa.RecordBatch], done: Written) -> None:
        for report in sender.send(self._calls(sender, batches, done)):
            done.published += report.accepted
            done.duplicates += report.duplicates

    def _calls(self, sender: Sender, batches: Iterable[pa.RecordBatch], done: Written) -> Iterator[Batch]:
        """Yield one batch per call, while the batches before are sent."""
        names = RowNames(done.write_id, done.partition)
        for parts, keys in self._chunks(sender, batches, done.write_id):
            done.rows += len(parts)
            yield sender.batch(parts, names.keys(parts) if keys is None else keys, first=done.rows - len(parts))

    def _stage(self, sender: Sender, batches: Iterable[pa.RecordBatch], done: Written) -> None:
        if staging.is_done(sender, done.write_id):
            done.repeated = True
            done.rows = sum(batch.num_rows for batch in batches)  # Spark sends all rows in any case
            return
        writer = staging.StageWriter(sender, done.write_id, done.partition, self._max_rows_per_call(sender))
        for parts, _ in self._chunks(sender, batches, done.write_id):
            writer.append(parts)
            done.rows += len(parts)
        done.stage = writer.stage()

    def _chunks(
        self, sender: Sender, batches: Iterable[pa.RecordBatch], write_id: str
    ) -> Iterator[tuple[list[bytes], list[bytes] | None]]:
        """Yield the rows as parts and keys, as many at a time as one call may carry."""
        size, before = self._max_rows_per_call(sender), 0
        for batch in batches:
            for part, _ in cut(batch, _ROWS_TOGETHER):
                yield from self._encoded(sender, part, write_id, size, before)
                before += part.num_rows

    def _encoded(
        self, sender: Sender, given: pa.RecordBatch, write_id: str, size: int, first: int
    ) -> Iterator[tuple[list[bytes], list[bytes] | None]]:
        """Yield the rows of a batch, which are encoded together; where that fails, those before the unfit one."""
        parts: list[bytes] | None = None
        keys: list[bytes] | None = None
        batch, contents = self._split(given)
        try:
            rows = self.rows.rows(batch)
            sender.check(rows, first=first)
            parts = rows.parts()
            keys = rows.keys if contents is None else keys_of_contents(write_id, contents)
        except Exception:
            if batch.num_rows <= size:
                raise
        if parts is None:
            for start in range(0, given.num_rows, size):
                yield from self._encoded(sender, given.slice(start, size), write_id, size, first + start)
            return
        for start, end in call_ranges([len(part) for part in parts], size):
            yield parts[start:end], None if keys is None else keys[start:end]

    def _split(self, batch: pa.RecordBatch) -> tuple[pa.RecordBatch, pa.Array[Any] | None]:
        """Return the columns that are published, and the one that names the rows by their content."""
        import pyarrow as pa

        if self.content_at is None:
            return batch, None
        columns, names = list(batch.columns), list(batch.schema.names)
        contents = columns.pop(self.content_at)
        names.pop(self.content_at)
        return pa.RecordBatch.from_arrays(columns, names=names), contents if self.by_content else None

    def _max_rows_per_call(self, sender: Sender) -> int:
        """Return the number of rows that one call may publish."""
        return min(self.options.batch_size, sender.max_pending_length or self.options.batch_size)


def plan_write(options: WriteOptions, schema: StructType, overwrite: bool) -> WritePlan:
    """Plan a write for its options and its columns.

    Raises:
        ConfigurationError: the options, the queue and the columns cannot work together.
    """
    if overwrite:
        raise ConfigurationError(
            "a queue cannot be overwritten; write with mode('append') or outputMode('append'), and empty it with "
            "queue.purge('pending') where you mean to"
        )
    spec = QueueSpec.from_json(options.spec)
    changed = dict(spec.options)
    source = changed.get("get_deduplication_key")
    chosen = options.deduplication_key is not None or options.deduplication_key_column is not None
    if not changed.pop("publishes", True) and not chosen:
        raise ConfigurationError(
            f"the deduplication key of {place_of(spec)} is a function, which cannot be serialized; give the "
            "option deduplicationKey (a template over the row) or deduplicationKeyColumn"
        )
    if spec.kind == "stream":
        _refuse_overload(options, spec)
    else:
        changed |= _overload(options, changed)
    if options.deduplication_window_seconds is not None:
        changed["deduplication_window_seconds"] = options.deduplication_window_seconds
    keyed = chosen or source is not None
    if keyed and changed.get("deduplication_policy") == "until_acked" and options.write_mode == "direct":
        raise ConfigurationError(
            f"{place_of(spec)} frees deduplication keys on ack, so that a retried task would publish again what was "
            "acked meanwhile; write with writeMode=staged"
        )
    if keyed and changed.get("pending_overload_policy") == "drop_oldest":
        raise ConfigurationError(
            f"queue {spec.name!r} drops its oldest messages when it is full, and the key of a dropped one would refuse "
            "its successors; give the option overload=raise or overload=block, or no deduplication key"
        )
    content_at = _content_at(options, schema, keyed=keyed)
    rows = plan_rows(
        _without(schema, content_at),
        payload=options.payload_column,
        headers=options.headers_column,
        key_column=options.deduplication_key_column,
        key_source=options.deduplication_key if chosen else source,
        sort_keys=changed.get("sort_keys", False),
    )
    adapted = replace(spec, options=changed)
    publisher_of(adapted)  # refuses options that cannot work together
    return WritePlan(options, adapted.to_json(), rows, content_at)


def _content_at(options: WriteOptions, schema: StructType, *, keyed: bool) -> int | None:
    """Return the position of the column that names rows by their content.

    Raises:
        ConfigurationError: rows are to be named by it, and it is missing or has no effect.
    """
    found = [at for at, field in enumerate(schema.fields) if field.name == CONTENT_KEY]
    if options.write_key == "content":
        if keyed:
            raise ConfigurationError(
                "writeKey=content names rows that have no deduplication key, and these have one; leave one of them out"
            )
        if options.write_mode == "staged":
            raise ConfigurationError(
                "a write with writeMode=staged is published once under its writeId, however it is partitioned; leave "
                "writeKey=content out"
            )
        if not found:
            raise ConfigurationError(
                f"writeKey=content needs the column {CONTENT_KEY!r}, because a task does not see equal rows of other "
                "partitions: write sluicegate.spark.content_keys(df) instead of df"
            )
    return found[0] if found else None


def _without(schema: StructType, at: int | None) -> StructType:
    from pyspark.sql.types import StructType

    return schema if at is None else StructType(schema.fields[:at] + schema.fields[at + 1 :])


def _refuse_overload(options: WriteOptions, spec: QueueSpec) -> None:
    """Refuse options for a full queue, because a stream is never full.

    Raises:
        ConfigurationError: names the options.
    """
    given = [
        name
        for name, value in (
            ("maxPendingLength", options.max_pending_length),
            ("overload", options.overload),
            ("blockTimeoutSeconds", options.block_timeout_seconds),
        )
        if value is not None
    ]
    if given:
        raise ConfigurationError(
            f"{place_of(spec)} is never full, so it has no {' and '.join(given)}; leave that out, and bound the stream "
            "by its max_length or max_age_seconds, which options(stream) brings along"
        )


def _overload(options: WriteOptions, queue: Mapping[str, Any]) -> dict[str, Any]:
    """Return the changes of the options to a full queue's behaviour.

    Raises:
        ConfigurationError: an option has no effect.
    """
    changed: dict[str, Any] = {}
    if options.max_pending_length is not None:
        changed["max_pending_length"] = options.max_pending_length
    if options.overload is not None:
        changed["pending_overload_policy"] = options.overload
    after = {**queue, **changed}
    blocks = after.get("pending_overload_policy") == "block"
    if blocks and after.get("max_pending_length") is None:
        raise ConfigurationError(
            "overload=block needs max_pending_length, by the queue or as the option maxPendingLength: without it a "
            "queue is never full"
        )
    if options.block_timeout_seconds is not None and not blocks:
        raise ConfigurationError(
            "blockTimeoutSeconds is how long a write waits for room, and this write does not wait; give "
            "overload=block, or leave the option out"
        )
    if options.block_timeout_seconds is not None or options.overload == "block":
        seconds = _BLOCK_SECONDS if options.block_timeout_seconds is None else options.block_timeout_seconds
        changed["pending_overload_block_timeout_seconds"] = seconds
    return changed


def _progress_note(done: Written, staged: bool) -> str:
    what = (
        f"{done.rows} rows staged" if staged else f"{done.published} messages published, {done.duplicates} duplicates"
    )
    stay = "none of them is published" if staged else "they stay published, and a retry repeats none of them"
    return f"write {done.write_id!r}, partition {done.partition}: {what} before this error; {stay}"
