"""Spark's side of the Python data source API without a JVM: the same calls in the same order, milliseconds each.

Everything that crosses a process border in Spark is pickled and unpickled here as well: the class at registration, the
instance, the reader that goes to the executors, partitions, writers and commit messages. Offsets live as JSON text.
`test_harness.py` holds the order of calls against a real session, `scripts.matrix` against every version of PySpark.
"""

from __future__ import annotations

import dataclasses
import inspect
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib.util import find_spec
from typing import Any, Literal

import pyarrow as pa
import pyspark
from pyspark.serializers import CloudPickleSerializer
from pyspark.sql.datasource import (
    CaseInsensitiveDict,
    DataSource,
    DataSourceReader,
    InputPartition,
    WriterCommitMessage,
)
from pyspark.sql.types import Row, StructType
from pyspark.sql.worker.plan_data_source_read import records_to_arrow_batches
from pyspark.taskcontext import TaskContext

__all__ = [
    "ADMISSION",
    "INSTALLED",
    "ZERO_ARGUMENTS",
    "Attempt",
    "Checkpoint",
    "Killed",
    "Load",
    "Point",
    "Query",
    "Save",
    "StreamSave",
    "TaskFailed",
    "Trigger",
    "moved",
    "task",
]

ADMISSION = "admission"  # PySpark 4.2 and later: latestOffset(start, limit), prepareForTriggerAvailableNow
ZERO_ARGUMENTS = "zero arguments"  # PySpark 4.0 and 4.1: latestOffset()
Dialect = Literal["admission", "zero arguments"]
_PLANS_EACH_ACTION = pyspark.__version__.startswith("4.0.")
INSTALLED: Dialect = "admission" if find_spec("pyspark.sql.streaming.datasource") else "zero arguments"
Point = Literal["latest", "offsets", "commit", "partitions", "read", "sink", "commits"]
Trigger = Literal["default", "once", "available now"]

MAX_ATTEMPTS = 3
_MAX_RECORDS = 10_000
_pickler = CloudPickleSerializer()


class Killed(BaseException):
    """The driver was killed. No cleanup of Spark's follows, and `stop` of the reader is not called."""


class TaskFailed(Exception):
    """A task has failed in every one of its attempts, so the job has."""


def moved(value: Any) -> Any:
    """Return what arrives in another process."""
    return _pickler.loads(_pickler.dumps(value))


@contextmanager
def task(partition: int = 0, attempt: int = 0, properties: Mapping[str, str] | None = None) -> Iterator[None]:
    """Code inside runs as a task: `TaskContext.get()` answers."""
    before = TaskContext.get()
    context = object.__new__(TaskContext)
    context._stageId, context._partitionId, context._attemptNumber = 0, partition, attempt
    context._taskAttemptId, context._resources = partition + 1000 * attempt, {}
    context._localProperties = dict(properties or {})
    TaskContext._setTaskContext(context)
    try:
        yield
    finally:
        TaskContext._setTaskContext(before)


def instantiate(source: type[DataSource], options: Mapping[str, str]) -> DataSource:
    """Make the data source as `load()` and `save()` do, in a process that gets the registered class."""
    arrived = moved(source)
    given = CaseInsensitiveDict()
    for key, value in options.items():
        assert isinstance(value, str), f"options are texts: {key} is a {type(value).__name__}"
        given[key] = value
    assert inspect.ismethod(arrived.name), "name() must be a classmethod"
    return arrived(options=given)


@dataclass
class Load:
    """`spark.read.format(…).schema(…).options(…).load()`: one reader and one plan for any number of actions.

    Attributes:
        source: the registered class.
        options: texts.
        schema: declared by the user; None asks the source.
    """

    source: type[DataSource]
    options: Mapping[str, str]
    schema: StructType | None = None

    def __post_init__(self) -> None:
        self._instance = moved(instantiate(self.source, self.options))
        if self.schema is None:
            self.schema = _struct(self._instance.schema())
        self._plan: tuple[bytes, list[bytes]] | None = None

    def plan(self) -> list[InputPartition]:
        """Return the partitions, asked for once: at the first action."""
        if self._plan is None:
            reader = moved(self._instance).reader(self.schema)
            assert isinstance(reader, DataSourceReader)
            pushes = getattr(reader, "pushFilters", None)
            assert getattr(pushes, "__func__", None) is getattr(DataSourceReader, "pushFilters", None), "pushes filters"
            command = _pickler.dumps(reader)  # before partitions(), whose effects on the reader stay in that process
            self._plan = command, [_pickler.dumps(partition) for partition in _checked(reader.partitions())]
        return [_pickler.loads(partition) for partition in self._plan[1]]

    def read(self, index: int, attempt: int = 0) -> pa.Table:
        """Run one attempt of one task to its end."""
        self.plan()
        assert self._plan is not None
        assert self.schema is not None
        return _read(_pickler.loads(self._plan[0]), self._plan[1][index], self.schema, self._instance, index, attempt)

    def begin(self, index: int, attempt: int = 0) -> Iterator[Any]:
        """Return the iterator of one attempt, for tests that leave it in the middle."""
        self.plan()
        assert self._plan is not None
        with task(index, attempt):
            return _pickler.loads(self._plan[0]).read(_pickler.loads(self._plan[1][index]))

    def collect(self) -> pa.Table:
        """Run one action: read every partition again, in order; PySpark 4.0 makes a plan of its own for it."""
        if _PLANS_EACH_ACTION:
            self._plan = None
        assert self.schema is not None
        return _joined([self.read(index) for index in range(len(self.plan()))], self.schema)


@dataclass(frozen=True)
class Attempt:
    """How one attempt of a writing task goes.

    Attributes:
        batches: of its input before the input fails; None for all.
        lost: it runs to its end, and Spark does not take its result (a speculative attempt won, an executor was lost).
    """

    batches: int | None = None
    lost: bool = False


WHOLE = Attempt()


@dataclass
class Save:
    """A job of `df.write.format(…).mode("append").options(…).save()`.

    Attributes:
        source: the registered class.
        options: texts.
        partitions: each a list of Arrow batches or tables; one task per item.
        attempts: by partition, how its attempts go before the one that succeeds; `MAX_ATTEMPTS` failing ones end the
            job.
    """

    source: type[DataSource]
    options: Mapping[str, str]
    partitions: Sequence[pa.Table]
    attempts: Mapping[int, Sequence[Attempt]] = field(default_factory=dict)

    def run(self) -> list[WriterCommitMessage | None]:
        """Run the whole job and return what `commit` got.

        Raises:
            TaskFailed: after `abort`.
            Exception: of `commit`, after `abort` with every message.
        """
        writer = instantiate(self.source, self.options).writer(_schema_of(self.partitions), False)
        command, kept = _pickler.dumps(writer), _pickler.dumps(writer)
        messages: list[WriterCommitMessage | None] = [None] * len(self.partitions)
        try:
            for index in range(len(self.partitions)):
                messages[index] = _write(command, self.partitions[index], index, self.attempts.get(index, ()), {})
            _pickler.loads(kept).commit(moved(messages))
        except Exception:
            _pickler.loads(kept).abort(moved(messages))
            raise
        return messages


@dataclass
class StreamSave:
    """The sink's side of `writeStream.format(…)`: a writer per micro-batch, and a fresh one that commits.

    Attributes:
        source: the registered class.
        options: texts; Spark adds `checkpointlocation`.
        query_id: of the query, kept by its checkpoint.
        attempts: as in `Save`, for every micro-batch.
    """

    source: type[DataSource]
    options: Mapping[str, str]
    query_id: str = "6d5ab5de-3f24-4bdc-8d25-a37dcb3e8b8e"
    attempts: Mapping[int, Sequence[Attempt]] = field(default_factory=dict)
    _instance: DataSource | None = None

    def run(self, batch_id: int, partitions: Sequence[pa.Table], kill: bool = False) -> None:
        """Write and commit one micro-batch.

        Args:
            batch_id: Spark's number of it.
            partitions: one task each.
            kill: the driver dies before the commit.

        Raises:
            Killed: as asked for.
            TaskFailed: after `abort`.
        """
        schema = _schema_of(partitions)
        command = _pickler.dumps(instantiate(self.source, self.options).streamWriter(schema, False))
        properties = {"sql.streaming.queryId": self.query_id, "streaming.sql.batchId": str(batch_id)}
        messages: list[WriterCommitMessage | None] = [None] * len(partitions)
        try:
            for index, table in enumerate(partitions):
                messages[index] = _write(command, table, index, self.attempts.get(index, ()), properties)
            if kill:
                raise Killed(f"before the commit of batch {batch_id}")
            self._committer(schema).commit(moved(messages), batch_id)
        except Exception:
            self._committer(schema).abort(moved(messages), batch_id)
            raise

    def _committer(self, schema: StructType) -> Any:
        """Return a new writer each time, from one data source per query."""
        if self._instance is None:
            self._instance = instantiate(self.source, self.options)
        return moved(self._instance).streamWriter(schema, False)


@dataclass
class Checkpoint:
    """What Spark keeps of a query. Delete entries of `commits` to undo, take a new one for a deleted checkpoint.

    Attributes:
        offsets: the offset log: by batch, the offset's JSON at its end.
        commits: the commit log: batches whose sink is done.
    """

    offsets: dict[int, str] = field(default_factory=dict)
    commits: set[int] = field(default_factory=set)


Sink = Callable[[int, list[pa.Table]], None]


class Query:
    """One run of a streaming query, from its start to its end.

    The reader that answers offsets lives in `reader`; a second one, unpickled, reads. A killed query leaves `reader` as
    it is: what a real death of the process would end, the test ends (`on_death`).

    Args:
        source: the registered class.
        options: texts.
        checkpoint: survives the query.
        sink: gets the number of a micro-batch and a table per partition.
        dialect: of the PySpark that is played: how it asks for offsets. Default: as the one that is installed.
        trigger: `"available now"` lets `run` end by itself.
        schema: declared by the user; None asks the source.
        kill_after: the step after which the driver dies: the next `latest` offset was answered, the `offsets` log was
            written, the `commit` of the previous batch was called, `partitions` were planned, all was `read`, the
            `sink` is done, the `commits` log was written.
        on_death: called with the reader when the query was killed, in place of the end of its process.
    """

    def __init__(
        self,
        source: type[DataSource],
        options: Mapping[str, str],
        checkpoint: Checkpoint,
        sink: Sink,
        *,
        dialect: Dialect = INSTALLED,
        trigger: Trigger = "default",
        schema: StructType | None = None,
        kill_after: Point | None = None,
        on_death: Callable[[Any], None] | None = None,
    ) -> None:
        self._log = checkpoint
        self._sink = sink
        self._once = False
        self._kill_after = kill_after
        self._on_death = on_death
        self._instance = moved(instantiate(source, options))
        self._schema = schema if schema is not None else _struct(self._instance.schema())
        self.reader = moved(self._instance).streamReader(schema=self._schema)
        self._read_command: bytes | None = None
        self._admission = dialect == ADMISSION and bool(inspect.signature(self.reader.latestOffset).parameters)
        self._limit: dict[str, Any] = {"_type": "ReadAllAvailable"}
        self._start_up(trigger)

    def run(self, most: int = 100) -> list[int]:
        """Trigger until no batch runs; the batches that ran. After that an available-now query has ended."""
        ran = []
        while (batch := self.trigger()) is not None:
            ran.append(batch)
            if self._once:
                break
            assert len(ran) < most, f"no end after {most} micro-batches"
        return ran

    def trigger(self) -> int | None:
        """Run one trigger and return the number of the batch that ran, or None when there was nothing new."""
        try:
            return self._trigger()
        except Killed:
            if self._on_death is not None:
                self._on_death(self.reader)
            raise

    def _start_up(self, trigger: Trigger) -> None:
        if trigger == "available now" and self._admission and hasattr(self.reader, "prepareForTriggerAvailableNow"):
            self.reader.prepareForTriggerAvailableNow()
        else:  # Spark takes "once" for a source that cannot
            self._once = trigger != "default"
        if self._admission:
            self._limit = _as_dict(self.reader.getDefaultReadLimit())
        if self._once:
            self._limit = {"_type": "ReadAllAvailable"}
        self._batch, self._planned, self._start, self._end = 0, False, None, None
        if not self._log.offsets:
            return
        latest = max(self._log.offsets)
        offset = self._log.offsets[latest]
        if not self._admission:
            self._partitions(offset, offset)  # gives a source of the old kind the latest seen offset
        self._batch, self._planned, self._end = latest, True, offset
        self._start = self._log.offsets.get(latest - 1)
        if latest in self._log.commits:
            self._batch, self._planned, self._start = latest + 1, False, offset

    def _trigger(self) -> int | None:
        if not self._planned:
            self._end = self._next_offset()
            self._dies("latest")
            if self._end == self._start:
                return None
            self._log.offsets[self._batch] = self._end
            self._dies("offsets")
            if self._start is not None:
                self.reader.commit(json.loads(self._log.offsets[self._batch - 1]))
            self._dies("commit")
            self._planned = True
        self._run_batch()
        self._log.commits.add(self._batch)
        self._dies("commits")
        self._batch, self._planned, self._start = self._batch + 1, False, self._end
        return self._batch - 1

    def _next_offset(self) -> str:
        if not self._admission:
            return json.dumps(self.reader.latestOffset())
        start = self._start if self._start is not None else json.dumps(self.reader.initialOffset())
        answer = json.dumps(self.reader.latestOffset(json.loads(start), _limit(self._limit)))
        json.dumps(self.reader.reportLatestOffset())
        return answer

    def _run_batch(self) -> None:
        assert self._end is not None
        tables: list[pa.Table] = []
        if self._start != self._end:
            start = self._start if self._start is not None else json.dumps(self.reader.initialOffset())
            partitions = self._partitions(start, self._end)
            self._dies("partitions")
            if self._read_command is None:
                self._read_command = _pickler.dumps(moved(self._instance).streamReader(schema=self._schema))
            for index, partition in enumerate(partitions):
                reader = _pickler.loads(self._read_command)
                tables.append(_read(reader, partition, self._schema, self._instance, index, 0))
        self._dies("read")
        self._sink(self._batch, tables)
        self._dies("sink")

    def _partitions(self, start: str, end: str) -> list[bytes]:
        return [_pickler.dumps(each) for each in _checked(self.reader.partitions(json.loads(start), json.loads(end)))]

    def _dies(self, after: Point) -> None:
        if after == self._kill_after:
            raise Killed(f"after {after}, batch {self._batch}")


def _read(reader: Any, partition: bytes, schema: StructType, source: DataSource, index: int, attempt: int) -> pa.Table:
    """Run one attempt of a reading task, checked as Spark checks what it yields."""
    with task(index, attempt):
        rows = reader.read(_pickler.loads(partition))
        assert isinstance(rows, Iterator), f"read() must return an iterator, not a {type(rows).__name__}"
        batches = records_to_arrow_batches(rows, _MAX_RECORDS, schema, source)
        return _joined([pa.table(each) for each in batches], schema)


def _write(
    command: bytes, table: pa.Table, index: int, attempts: Sequence[Attempt], properties: Mapping[str, str]
) -> WriterCommitMessage:
    """Run the attempts of a writing task, up to the one whose message counts."""
    for number, attempt in enumerate([*attempts, WHOLE][:MAX_ATTEMPTS]):
        writer = _pickler.loads(command)
        with task(index, number, properties):
            try:
                message = writer.write(_input(writer, table, attempt))
            except _InputFailed:
                continue
        assert isinstance(message, WriterCommitMessage), f"write() returned a {type(message).__name__}"
        if not attempt.lost:
            arrived: WriterCommitMessage = moved(message)
            return arrived
    raise TaskFailed(f"partition {index}")


class _InputFailed(Exception):
    """What feeds the writer has failed: it ends in the middle of its loop."""


def _input(writer: Any, table: pa.Table, attempt: Attempt) -> Iterator[Any]:
    batches = table.to_batches()
    bases = {each.__name__ for each in type(writer).__mro__}  # before 4.1 there is no Arrow writer for streams
    as_arrow = bool(bases & {"DataSourceArrowWriter", "DataSourceStreamArrowWriter"})
    for batch in batches[: attempt.batches]:
        yield from [batch] if as_arrow else (Row(**row) for row in batch.to_pylist(maps_as_pydicts="strict"))
    if attempt.batches is not None:
        raise _InputFailed


def _joined(tables: Sequence[pa.Table], schema: StructType) -> pa.Table:
    from pyspark.sql.pandas.types import to_arrow_schema

    zone = {"timezone": "UTC"} if "timezone" in inspect.signature(to_arrow_schema).parameters else {}  # since 4.1
    return pa.concat_tables([to_arrow_schema(schema, **zone).empty_table(), *tables])


def _schema_of(tables: Sequence[pa.Table]) -> StructType:
    from pyspark.sql.pandas.types import from_arrow_schema

    return from_arrow_schema(tables[0].schema)


def _struct(schema: StructType | str) -> StructType:
    assert isinstance(schema, StructType), "give a StructType: parsing a text needs a session"
    return schema


def _checked(partitions: Sequence[InputPartition]) -> list[InputPartition]:
    assert isinstance(partitions, (list, tuple)), f"partitions() must return a list, not a {type(partitions).__name__}"
    assert all(isinstance(each, InputPartition) for each in partitions)
    return list(partitions)


def _limit(values: dict[str, Any]) -> Any:
    """Return the limit as the reader's process gets it, in PySpark 4.2 and later."""
    from pyspark.sql.datasource_internal import ReadLimitRegistry

    return ReadLimitRegistry().get(json.loads(json.dumps(values)))


def _as_dict(limit: Any) -> dict[str, Any]:
    return dataclasses.asdict(limit) | {"_type": type(limit).__name__}
