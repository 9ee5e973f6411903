"""The driver's side of a drain with Spark."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING

from sluicegate import checks
from sluicegate.consumer import QueueConsumer
from sluicegate.core import json
from sluicegate.draining import arguments
from sluicegate.draining.arguments import OnFailures, Progress, Until
from sluicegate.draining.conclude import conclude
from sluicegate.draining.drivers import driver_heartbeat
from sluicegate.draining.handler import BatchFormat, Handler
from sluicegate.draining.plan import DrainPlan
from sluicegate.draining.progress import watching
from sluicegate.draining.summary import DrainSummary, PartitionSummary
from sluicegate.errors import ConfigurationError
from sluicegate.report import Depth
from sluicegate.spark import _workers
from sluicegate.spark._access import read_depth
from sluicegate.spark.draining.speculation import with_speculation
from sluicegate.spark.draining.task import REPORT_SCHEMA, is_report, run
from sluicegate.spark.schemas import parsed

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession
    from pyspark.sql.types import StructType

__all__ = ["drain"]

_FEW_TASKS = 8
_PARALLELISM = "spark.sql.leafNodeDefaultParallelism"


def drain(
    spark: SparkSession,
    queue: QueueConsumer,
    process: Callable[..., object],
    *,
    partitions: int | None = None,
    batch_size: int = 1000,
    lease_seconds: float = 60,
    run_id: str | None = None,
    remember_empty: bool = True,
    batch_format: BatchFormat | None = None,
    schema: str | StructType | pa.Schema | None = None,
    mode: str = "FAILFAST",
    column_name_of_corrupt_record: str | None = None,
    until: Until = "empty",
    deadline_seconds: float | None = None,
    progress: Progress = None,
    on_failures: OnFailures = "raise",
) -> DrainSummary:
    """Claim, process and settle ready messages in Spark's executors.

    The drain ends when the queue is empty or paused, a number of messages is done, or a deadline is reached. Each
    partition claims chunk after chunk, one lease each, calls `process(batch)` or `process(batch, ctx)`, and acks the
    batch when it returns. A heartbeat keeps the lease open while the handler works. Delivery is at-least-once: a task
    that Spark retries takes over its own open lease at once, with the same messages and the same `ctx.lease_key`, and
    counts the chunks that it finished before.

    An error of the handler is caught. A failed chunk is split in halves until the failing messages are alone. They are
    nacked with the error and a growing delay, or buried at their last delivery, and the others are acked. The queue's
    `on_error` and `retry_backoff` apply here too. If a handler fails on every message, its partition ends and the
    others continue. A handler that raises must leave no output behind: write with `ctx.output_file`, see
    `DrainContext`. Any other failure (Redis, a lost lease, a killed worker) is left to Spark's own retries.

    A handler may also give verdicts: through the context (`ctx.nack(...)`, see `DrainContext`), or by its result: None
    if all is done, one of `"ack"`, `"nack"`, `"release"`, `"bury"` or None per message by position (a list, an Arrow or
    pandas column), or a table or frame with the columns `message_id` (or `id`), `verdict` and optionally `error` and
    `delay_seconds`. Such verdicts are counted in the summary and are not failures of the drain. All verdicts of a chunk
    take effect in one call, and each message has one. Any other result is a failure of the handler.

    No task of a call claims a message again that the call returned to the queue by a verdict or a failure. If such a
    message becomes claimable meanwhile, it is delayed for `lease_seconds`, at most 30 s, uncounted. If a worker dies
    between recording a message and returning it, later calls may delay it as well.

    With `spark.speculation=true`, a speculative attempt waits for the chunk that the other attempt holds, until that
    attempt has been silent for 3.5 heartbeats (of 5 s, or a quarter of the lease; for the whole lease if the queue has
    `heartbeat_interval_seconds=0`). The two may share the chunks. Each chunk is processed and counted once, and Spark
    takes the report of one attempt.

    Args:
        spark: a session, classic or Connect. Executors need this package, `pyarrow`, a way to Redis, and the variable
            that holds its password.
        queue: the queue; it must be serializable, so made from a `url` without a literal password.
        process: a plain function of a batch and optionally a `DrainContext`. It is pickled, so the executors must be
            able to import what it needs from your own modules. Only what no other process can import is sent whole: the
            functions and classes of the main module, a notebook, or a file that was loaded under a name of its own,
            such as an Airflow DAG file or a Dagster code location.
        partitions: number of partitions, each with its own leases; default as many as Spark makes for a range, one per
            core. If there are more of them than chunks of messages and cores, some share a task.
        batch_size: maximum number of messages of a chunk, from 1 to 10,000. Messages that failed before come in smaller
            chunks.
        lease_seconds: how long a lease stays open after its worker died without a retry; extended every third of this
            time, unless the queue's `heartbeat_interval_seconds` is set.
        run_id: names the run; default a new id. An orchestrator passes an id that is the same for every try and used by
            one driver at a time, with the same number of partitions. A retry then takes over the leases that an earlier
            try left open, repeats nothing that it finished (remembered for a day), counts it, and continues with the
            messages that failed. So give each scheduled run its own `run_id`. A second driver under it that runs at the
            same time logs a warning and sets `summary.other_driver`.
        remember_empty: whether a partition that found the queue empty does not claim again for ten minutes, in any call
            under the same `run_id`; if messages are ready by then, the call logs a warning and counts them in
            `summary.skipped_ready`. False: a repeated call drains them.
        batch_format: `"messages"` (a list of `Message`, the default), `"arrow"` (a `pyarrow.Table` with the columns
            id, payload, headers, deduplication_key, delivery_count, sequence and enqueued_at) or `"pandas"` (the same
            as a frame); the annotation of the function's first parameter selects it too.
        schema: schema of the payloads, for Arrow and pandas: a DDL text, a Spark `StructType` or an Arrow schema. The
            batch then has these fields, parsed from the JSON payloads, followed by the columns of the message under the
            prefix `message_`.
        mode: of a drain with a schema, in any case. `"FAILFAST"`: a payload that does not fit is a failure of its
            message. `"PERMISSIVE"`: the fields that do not fit are null, and a declared string column
            `_corrupt_record` holds the payload. `"BURY"`: its message becomes a dead letter with the reason
            `invalid_payload` and the path, and the handler gets the others.
        column_name_of_corrupt_record: another name for that column.
        until: `"empty"`: a partition ends when it finds nothing to claim. `"deadline"`: it waits for new messages until
            `deadline_seconds` have passed. A number: at most this many messages are claimed, divided equally among the
            partitions; a partition may find the queue empty before it has claimed its share. Under the same `run_id`,
            messages that an earlier call finished count, those that it returned do not.
        deadline_seconds: how long chunks are claimed, counted from this call by the clocks of driver and executors.
            Each task finishes its current chunk. Required for `until="deadline"`, and optional for the others.
        progress: None: on a terminal a bar on stderr after 2 s, otherwise a line of the logger `sluicegate` every 10
            s (on stderr if no logging is configured); False: nothing; True: always a bar; a function is called about
            once a second with a `DrainProgress`. The driver reads the counts from the queue, so they include the work
            of others. Errors in the progress display do not affect the drain.
        on_failures: `"raise"`: messages that the handler failed on make the call raise at its end; `"return"`: the call
            returns, and `summary.failed` and `summary.failures` list them. A partition whose handler failed on every
            message has `ended="failing"`.

    Raises:
        DrainFailedError: the handler failed on at least one message, or a payload did not fit its schema. It is raised
            after all partitions have ended and all other messages are acked; `summary.failed` is the number of failed
            messages. If failures should not fail the job, pass `on_failures="return"`, or give verdicts.
        ConfigurationError: the queue cannot be serialized, or an argument is out of range; no Spark job has started.
            Also if Spark's Python workers lack this package or a module of the handler.
        RedisUnavailableError: the driver cannot reach Redis; no Spark job has started.
    """
    arguments.check_queue(queue)
    if partitions is not None and not arguments.is_count(partitions, arguments.MAX_PARTITIONS):
        raise ConfigurationError(f"partitions must be an int from 1 to {arguments.MAX_PARTITIONS}, not {partitions!r}")
    checks.flag("remember_empty", remember_empty)
    arguments.check(
        batch_size=batch_size,
        lease_seconds=lease_seconds,
        run_id=run_id,
        until=until,
        deadline_seconds=deadline_seconds,
        progress=progress,
        on_failures=on_failures,
    )
    spec = queue.spec()
    handler = Handler.of(process, batch_format, parsed(schema), mode, column_name_of_corrupt_record)
    _pickled(process)
    depth = read_depth(spec)
    _workers.prepare(spark, spec)
    started, at = time.monotonic(), time.time()
    count = partitions if partitions is not None else _cores(spark)
    plan = DrainPlan(
        run_id=uuid.uuid4().hex if run_id is None else run_id,
        handler=handler,
        batch_size=batch_size,
        lease_seconds=lease_seconds,
        partitions=count,
        limit=until if isinstance(until, int) else None,
        waits=until == "deadline",
        deadline_seconds=deadline_seconds,
        deadline_at=at + (deadline_seconds or 0),
        remembers_empty=remember_empty,
    )
    if (spark.conf.get("spark.speculation", "false") or "").lower() == "true":
        plan = with_speculation(plan, spec.options.get("heartbeat_interval_seconds"))
    text, pickled = spec.to_json(), _pickled(plan)

    def task(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return run(text, pickled, batches)

    tasks = _tasks(plan, depth, lambda: count if partitions is None else _cores(spark))
    with (
        driver_heartbeat(spec, run_id, lease_seconds) as drivers,
        watching(spec, plan.run_id, progress),
        _workers.explaining(),
    ):
        reports = spark.range(0, count, 1, tasks).mapInArrow(task, REPORT_SCHEMA)
        rows = reports.where(is_report()).collect()
    return conclude(
        queue.name,
        plan.run_id,
        [PartitionSummary.from_dict(json.loads(row[0])) for row in rows],
        time.monotonic() - started,
        None if run_id is None else lambda: read_depth(spec).ready,
        on_failures,
        drivers.other,
    )


def _pickled(value: object) -> bytes:
    """Pickle a handler, or the plan that has it; the error of a pickle alone names a lock and not what to do."""
    from sluicegate.spark.draining import pickling

    try:
        return pickling.dumps(value)
    except Exception as error:
        raise ConfigurationError(
            f"process cannot be serialized for the executors ({type(error).__name__}: {error}); it must not "
            "hold a session, queue, client or open file: make these inside of it, a queue with "
            "RedisMessageQueue.from_spec(spec), or a group of a stream with sluicegate.open_spec(spec)"
        ) from error


def _tasks(plan: DrainPlan, depth: Depth, cores: Callable[[], int]) -> int:
    """Return how many Spark tasks do the work: no more than there are chunks, but one per core.

    Several partitions then share a task, one after the other, and a partition that finds nothing costs a call of Redis
    instead of a task. Messages that arrive meanwhile have every core. A drain that waits for messages has a task per
    partition, as has a number of partitions that is not worth the question.
    """
    if plan.waits or plan.partitions <= _FEW_TASKS:
        return plan.partitions
    chunk, ready = plan.batch_size, depth.ready
    if plan.limit is not None:
        chunk, ready = min(chunk, -(-plan.limit // plan.partitions)), min(ready, plan.limit)
    useful = -(-ready // chunk) + depth.leases  # of which some may be this run's, to be taken over
    return plan.partitions if useful >= plan.partitions else min(plan.partitions, max(useful, cores()))


def _cores(spark: SparkSession) -> int:
    """Return how many tasks Spark makes of a range by default; Connect has no SparkContext to ask, and makes one."""
    context = getattr(spark, "sparkContext", None)
    if context is not None:
        return min(arguments.MAX_PARTITIONS, int(spark.conf.get(_PARALLELISM, None) or context.defaultParallelism))
    row = spark.range(arguments.MAX_PARTITIONS).selectExpr("spark_partition_id() as p").selectExpr("max(p) + 1").first()
    assert row is not None
    return int(row[0])
