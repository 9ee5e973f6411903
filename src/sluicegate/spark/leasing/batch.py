"""Lease a batch on the driver, let Spark read it any number of times, and settle it at the end."""

from __future__ import annotations

import logging
import uuid
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, NoReturn

from sluicegate import checks
from sluicegate._lease_base import LeaseState
from sluicegate.consumer import QueueConsumer
from sluicegate.core.ledger import LeaseCounts
from sluicegate.draining.arguments import MAX_PARTITIONS
from sluicegate.errors import AlreadySettledError, ConfigurationError, RedisMessageQueueError
from sluicegate.log_lines import log_line
from sluicegate.spark import _workers
from sluicegate.spark._place import place_of
from sluicegate.spark.browsing.frames import collect_ids, reader
from sluicegate.spark.leasing.manifest import Part, dump
from sluicegate.spark.leasing.run_leases import RunLeases, claim_run
from sluicegate.spark.schemas import parsed, struct_of
from sluicegate.tables.columns import Columns

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

__all__ = ["LeasedBatch", "Txn", "lease_batch"]

_log = logging.getLogger("sluicegate")


class Txn(NamedTuple):
    """Holds Delta's `txnAppId` and `txnVersion`: a table accepts a pair once and skips it afterwards.

    Attributes:
        application_id: names exactly the current rows of the batch.
        version: when the last of them was leased, in microseconds by the server's clock.
    """

    application_id: str
    version: int


def lease_batch(
    spark: SparkSession,
    queue: QueueConsumer,
    limit: int,
    *,
    run_id: str | None = None,
    lease_seconds: float = 300,
    schema: str | StructType | pa.Schema | None = None,
    mode: str = "FAILFAST",
    column_name_of_corrupt_record: str | None = None,
    partitions: int | None = None,
    on_error: Literal["release", "keep"] = "release",
) -> AbstractContextManager[LeasedBatch]:
    """Lease up to `limit` messages for a `with` block, as a DataFrame.

    ::

        with lease_batch(spark, queue, 100_000, run_id=run_id) as batch:
            if batch:
                batch.df.write.mode("overwrite").parquet(f"{folder}/batch={batch.lease_key}")
                batch.ack()

    The driver claims the messages in leases of up to 10,000, and heartbeats extend the leases while the block runs. Any
    number of actions, joins and retries of `batch.df` read the same rows: a read changes nothing. Leaving the block
    releases the messages without a verdict, uncounted, as does an error. Delivery is at least once.

    A crashed driver leaves its leases open until they expire. A second `with` under the same `run_id` takes over the
    same rows, with the same `lease_key` and `txn`, and no others; it completes an ack that the first had begun. If the
    first has acked all of its messages, the second leases nothing: the batch is falsy and its `state` is `ACKED`. If
    all messages of the first returned to the queue, the run starts again.

    Args:
        spark: a session, classic or Connect. Executors need this package, `pyarrow` and access to Redis; so does the
            driver, with Connect the client.
        queue: the queue or group of a stream to lease from; it is sent to executors, so make it from a `url` without a
            literal password.
        limit: the largest number of messages. Messages that failed before come in small leases, and a batch has at most
            1,000 leases.
        run_id: names the work; default a new id. An orchestrator passes the same id for every try, and one driver uses
            it at a time: a second driver takes the leases from a live first one, whose `ack` then fails.
        lease_seconds: how long the leases outlive a driver that died; extended every third of it.
        schema: of JSON payloads, as DDL text, a Spark `StructType` or a `pyarrow.Schema`. The DataFrame has its columns
            and then `message_id`, `message_headers` and so on; without it `id`, `payload`, `headers`,
            `deduplication_key`, `delivery_count`, `sequence` and `enqueued_at`.
        mode: what happens to payloads that do not fit the schema, in any case. `"FAILFAST"`: a read of `df` fails.
            `"PERMISSIVE"`: the fields that do not fit are null, and a declared string column `_corrupt_record` holds
            the payload. `"BURY"`: the driver parses the messages as it claims them, and those that do not fit become
            dead letters with the reason `invalid_payload` and the path. `df` has the others; it has no rows if all were
            buried, and `ack` is then harmless.
        column_name_of_corrupt_record: another name for that column.
        partitions: the largest number of tasks of a read; default one per 10,000 messages, and up to four for fewer.
        on_error: what happens to the messages when the block raises: `release` releases them at once; `keep` leaves
            them leased until they expire, so that a retry of the run gets the same rows under the same key. Use `keep`
            for sinks that may have committed a write that they reported as failed.

    Raises:
        ConfigurationError: an argument cannot work; raised before anything is claimed.
        RedisUnavailableError: Redis cannot be reached; raised on entering the block.
    """
    if not isinstance(queue, QueueConsumer):
        raise TypeError(f"queue must be a RedisMessageQueue or the group of a stream, not a {type(queue).__name__}")
    spec = queue.spec()
    if limit is None:
        raise ConfigurationError(
            "limit must be an int of 1 or more, not None; queue.depth().ready counts the ready messages"
        )
    checks.count("limit", limit)
    checks.positive("lease_seconds", lease_seconds)
    checks.whole("partitions", partitions, MAX_PARTITIONS)
    checks.one_of("on_error", on_error, ("release", "keep"))
    if run_id is not None and (not isinstance(run_id, str) or not run_id.strip()):
        raise ConfigurationError(f"run_id must be a str with a visible character, not {run_id!r}")
    if spec.options.get("visibility_timeout_seconds", 1) is None:
        raise ConfigurationError(
            f"{place_of(queue)} is at-most-once (visibility_timeout_seconds=None): its messages are acked as they "
            "are claimed, and a batch could not be read twice; give it a timeout"
        )
    _workers.prepare(spark, spec)
    columns = Columns.of(
        parsed(schema), mode=mode, column_name_of_corrupt_record=column_name_of_corrupt_record, variants=True
    )
    return _Block(_leased(spark, queue, limit, run_id, lease_seconds, columns, partitions, on_error))


class _Block(AbstractContextManager["LeasedBatch"]):
    """Claims nothing before a `with` enters it; `lease_batch` returns it."""

    def __init__(self, block: AbstractContextManager[LeasedBatch]) -> None:
        self._block = block

    def __enter__(self) -> LeasedBatch:
        return self._block.__enter__()

    def __exit__(self, *raised: Any) -> bool | None:
        return self._block.__exit__(*raised)

    def __getattr__(self, name: str) -> NoReturn:
        raise AttributeError(
            f"{name!r} is the batch's, which is leased for a `with` block only: with lease_batch(...) as batch: "
            f"batch.{name}"
        )

    def __bool__(self) -> NoReturn:
        raise TypeError("a batch is leased for a `with` block only: with lease_batch(...) as batch: if batch: ...")


@contextmanager
def _leased(
    spark: SparkSession,
    queue: QueueConsumer,
    limit: int,
    run_id: str | None,
    lease_seconds: float,
    columns: Columns,
    partitions: int | None,
    on_error: Literal["release", "keep"],
) -> Iterator[LeasedBatch]:
    retried = run_id is not None
    run_leases = claim_run(queue, run_id or uuid.uuid4().hex, limit, lease_seconds, retried=retried, columns=columns)
    if run_leases.state is LeaseState.ACKED:
        _log_ready_messages(queue, run_leases.run_id)
    try:
        yield LeasedBatch(spark, run_leases, columns, partitions)
    except BaseException:
        run_leases.end(keep=on_error == "keep")
        raise
    run_leases.end()


def _log_ready_messages(queue: QueueConsumer, run_id: str) -> None:
    """Log how many messages are ready, for a program that always passes the same `run_id` and so leases nothing."""
    with suppress(RedisMessageQueueError):
        ready = queue.depth().ready
        if ready:
            log_line(
                logging.INFO,
                f"batch {run_id!r} of {place_of(queue)} leases nothing: an earlier call with this run_id has acked "
                f"its messages. {ready} others are ready, for a batch with another run_id",
            )


class LeasedBatch:
    """Gives messages that are leased to this driver as a DataFrame; `lease_batch` makes it.

    It is falsy if it leased nothing. After `ack_where`, `df`, `count`, `lease_key` and `txn` describe the other rows.
    """

    def __init__(self, spark: SparkSession, run_leases: RunLeases, columns: Columns, partitions: int | None) -> None:
        self._spark = spark
        self._leases = run_leases
        self._columns = columns
        self._partitions = partitions
        self._frame: tuple[str, DataFrame] | None = None

    @property
    def run_id(self) -> str:
        """Return the id of the run."""
        return self._leases.run_id

    @property
    def state(self) -> LeaseState:
        """Return the claim's answer: `OPEN`, or the reason for an empty batch.

        The reason is `EMPTY`, `PAUSED`, or `ACKED` if an earlier try of this run has acked its messages.
        """
        return self._leases.state

    @property
    def df(self) -> DataFrame:
        """Return the rows. Each action reads them from Redis; a read after their leases ended raises with the reason.

        It is the same object until `ack_where` leaves fewer rows.
        """
        key = self.lease_key
        if self._frame is None or self._frame[0] != key:
            self._frame = key, self._read()
        return self._frame[1]

    @property
    def count(self) -> int:
        """Return the number of rows of `df`, without reading them."""
        return sum(len(row.slots) for row in self._leases.rows)

    @property
    def counts(self) -> LeaseCounts:
        """Return the confirmed verdicts: messages acked, returned and buried, also by earlier tries of this run."""
        return self._leases.counts

    @property
    def lost(self) -> bool:
        """Return whether some lease is no longer held now, so that an `ack` would be too late for it."""
        return self._leases.lost

    @property
    def lease_key(self) -> str:
        """Return a file-safe name of exactly these rows: 32 hex digits.

        A retry that takes the same rows over gets the same name; with one row more or less the name differs. A repeat
        therefore overwrites its own output and nothing else.
        """
        return self._leases.digest

    @property
    def txn(self) -> Txn:
        """Return the pair for Delta's `txnAppId` and `txnVersion`.

        Delta silently skips a write whose version is not above the last version of its application id. If two batches
        could be confused, Delta would skip rows that are then acked. A counter of the queue is no safe version, because
        Redis may lose its last moments in a failover and count again. One application id for several batches is not
        safe either, because the later batch may be written first. Therefore the application id names exactly these
        rows, and the version is a server time, which orders batches. A second write of the same rows to the same table
        needs another application id: append a name to this one.
        """
        run_leases = self._leases
        return Txn(f"{run_leases.queue.name}:{run_leases.run_id}:{run_leases.digest}", run_leases.opened_us)

    def ack(self) -> None:
        """Ack all rows.

        Raises:
            LeaseLostError: some leases were lost; their messages are or will be delivered again, the others are acked.
            AlreadySettledError: the batch was released.
        """
        self._check_released()
        self._leases.ack()

    def ack_where(self, df: DataFrame) -> int:
        """Ack the rows of this batch whose message ids are in a DataFrame; the other rows stay leased.

        Only the column `id` (with a declared schema, `message_id`) is evaluated and sent to the driver, before anything
        is acked. Cache a DataFrame that is not deterministic first, or it may select other rows than were written.
        Several leases are not acked in one step: after a crash in between, a retry gets some of the rows again.

        Returns:
            The number of messages; ids that are null are ignored.

        Raises:
            AlreadySettledError: an id is not in this batch, and nothing was acked; or the batch was released.
            LeaseLostError: as for `ack`.
            ConfigurationError: the DataFrame has no such column.
        """
        self._check_released()
        names = ("message_id",) if "message_id" in self._columns.names else ("id", "message_id")
        ids = collect_ids(df, names, "ack_where")
        return self._leases.ack_ids(one for one in ids if one is not None)

    def release(self) -> None:
        """Release the messages without a verdict, uncounted; the end of the block does the same."""
        self._leases.release()

    def _read(self) -> DataFrame:
        parts = [Part(row.lease_id, row.opening, row.slots) for row in self._leases.rows]
        source = reader(self._spark).option("spec", self._leases.queue.spec().to_json())
        source = source.option("manifest", dump(parts))
        if self._columns.mode == "PERMISSIVE":
            source = source.option("mode", "PERMISSIVE")
            if self._columns.corrupt_column is not None:
                source = source.option("columnNameOfCorruptRecord", self._columns.corrupt_column)
        if self._partitions is not None:
            source = source.option("numPartitions", str(self._partitions))
        with _workers.explaining():
            return source.schema(struct_of(self._columns)).load()

    def _check_released(self) -> None:
        if self._leases.released:
            raise AlreadySettledError(f"batch {self.run_id!r} was released; its messages are in the queue again")

    def __len__(self) -> int:
        return self.count

    def __bool__(self) -> bool:
        return bool(self._leases.leases)

    def __repr__(self) -> str:
        return f"LeasedBatch(run_id={self.run_id!r}, state={self.state.value}, count={self.count})"
