"""The driver's side of a drain."""

from __future__ import annotations

import logging
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Literal

from sluicegate import checks
from sluicegate.core import json
from sluicegate.errors import ConfigurationError, DrainFailedError, RedisMessageQueueError
from sluicegate.queue import RedisMessageQueue
from sluicegate.report import Depth
from sluicegate.spark import _workers
from sluicegate.spark._access import depth_of
from sluicegate.spark._saying import say
from sluicegate.spark.draining.handler import BatchFormat, Handler
from sluicegate.spark.draining.plan import DrainPlan
from sluicegate.spark.draining.progress import DrainProgress, watching
from sluicegate.spark.draining.task import REPORT_SCHEMA, is_report, run
from sluicegate.spark.summary import DrainSummary, PartitionSummary

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession
    from pyspark.sql.types import StructType

__all__ = ["drain"]

MAX_CLAIM_LIMIT = 10_000
_MAX_PARTITIONS = 10_000
_FEW_TASKS = 8
_PARALLELISM = "spark.sql.leafNodeDefaultParallelism"
_MAX_LEASE_SECONDS = 31_622_400
_log = logging.getLogger("sluicegate")


def drain(
    spark: SparkSession,
    queue: RedisMessageQueue,
    process: Callable[..., object],
    *,
    partitions: int | None = None,
    batch_size: int = 1000,
    lease_seconds: float = 60,
    run_id: str | None = None,
    batch_format: BatchFormat | None = None,
    schema: str | StructType | pa.Schema | None = None,
    until: Literal["empty", "deadline"] | int = "empty",
    deadline_seconds: float | None = None,
    progress: bool | Callable[[DrainProgress], object] | None = None,
) -> DrainSummary:
    """Claim, work on and settle what is ready, in Spark's executors, until the queue is empty or paused, a number of
    messages is done, or a deadline is reached.

    Each partition claims chunk after chunk, one lease each, calls `process(batch)` or `process(batch, ctx)`, and acks
    what it returned from. A heartbeat keeps the lease while the handler works. Delivery is at least once: a task that
    Spark retries takes its own open lease over at once, with the same messages and the same `ctx.lease_key`, and finds
    what it has finished acked.

    What the handler raises is caught. A failed chunk is halved until the culprits are alone; they are nacked with the
    error and a growing delay (or buried, at their last delivery), and the others are acked. The queue's `on_error` and
    `retry_backoff` hold here, too. A handler that fails at everything ends its partition; the other partitions go on. A
    handler that raises must leave no output behind: write under a temporary name and rename as the last step, see
    `DrainContext`. Anything else that goes wrong (Redis, a lost lease, a killed worker) is left to Spark's own retries.

    A handler may also give verdicts: through the context (`ctx.nack(...)`, see `DrainContext`), or by what it returns:
    None where all is done, one of `"ack"`, `"nack"`, `"release"`, `"bury"` or None per message by position (a list, an
    Arrow or pandas column), or a table or frame with the columns `message_id` (or `id`), `verdict` and optionally
    `error` and `delay_seconds`. Such verdicts are counted in the summary and are no failures of the drain. All verdicts
    of a chunk take effect in one call, each message has one. Anything else that it returns is a failure of the handler.

    What a call of `drain` gave back, by a verdict or for a failure, none of its tasks claims again: when it comes back
    to the queue meanwhile it is put off for `lease_seconds`, 30 s at most, uncounted. A worker that dies between noting
    a message and giving it back may leave it to later calls, too.

    With `spark.speculation=true` a copy of a task that runs beside the first waits for the chunk that the other holds,
    until that was silent for 3.5 heartbeats (of 5 s, or a quarter of the lease; for the whole lease where the queue
    has `heartbeat_interval_seconds=0`). The two may share the chunks; each chunk is worked on and counted once, and
    Spark takes the report of one.

    Args:
        spark: a session, classic or Connect. Executors need this package, `pyarrow`, a way to Redis, and the variable
            that holds its password.
        queue: what to drain; it must be able to travel, so made from a `url` without a literal password.
        process: a plain function of a batch and optionally a `DrainContext`. It travels as Spark pickles functions:
            what it needs from your own modules must be importable on the executors.
        partitions: how many work at the same time, each with its own leases; default as many as Spark makes by itself
            for a range, one per core. Where there are more of them than chunks of messages and cores, some share a
            task.
        batch_size: most messages of a chunk, from 1 to 10,000. Messages that failed before come in smaller ones.
        lease_seconds: how long a lease outlives a worker that has died without a retry; renewed every third of it
            unless the queue's `heartbeat_interval_seconds` says otherwise.
        run_id: names the work; default a fresh one. An orchestrator passes one that is the same for every try, and that
            one driver uses at a time, with the same number of partitions: then a retry takes over what an earlier try
            left open, repeats nothing that it finished (remembered for a day), counts it, and goes on with what came
            back from a failure. A partition that found the queue empty does not look again for ten minutes; where
            messages are ready by then, the call logs a warning and says how many in `summary.skipped_ready`. So give
            each scheduled run a `run_id` of its own.
        batch_format: `"messages"` (a list of `Message`, the default), `"arrow"` (a `pyarrow.Table` with the columns
            id, payload, headers, deduplication_key, delivery_count, sequence and enqueued_at) or `"pandas"` (the same
            as a frame); also by the annotation of the function's first parameter.
        schema: of the payloads, for Arrow and pandas: a DDL text, a Spark `StructType` or an Arrow schema. The batch
            then has these fields, parsed out of the JSON payloads, followed by the columns of the message under the
            prefix `message_`. A payload that does not fit is a failure of its message.
        until: `"empty"`: a partition ends when it finds nothing to claim; `"deadline"`: it waits for new messages until
            `deadline_seconds` have passed; a number: at most so many messages are claimed, in equal shares per
            partition, of which one may find the queue empty before it has had its share. Under the same `run_id` what
            an earlier call finished counts, what it gave back does not.
        deadline_seconds: how long chunks are claimed, counted from this call by the clocks of driver and executors;
            the chunk in hand is finished. Needed for `until="deadline"`, and a bound for the others.
        progress: None: on a terminal a bar on stderr, otherwise a line of the logger `sluicegate` every 10 s (on stderr
            where no logging is set up), and nothing for a drain that is over sooner (a bar appears after 2 s); False
            for nothing; True for a bar wherever; a function is called about once a second with a `DrainProgress`. It
            reads the queue from the driver, so it counts what others do to it, too; what goes wrong with it alters
            nothing.

    Raises:
        DrainFailedError: the handler failed on a message at least, or a payload did not fit its schema. Raised after
            all partitions have ended and everything else is acked, with the `summary`, whose `failed` says on how
            many. Where single failures are no failure of the job, catch it, or give verdicts instead of raising.
        ConfigurationError: something that cannot work as given, before any Spark job: a queue that cannot travel, an
            argument out of range. Also when Spark's Python workers lack this package or a module of the handler.
        RedisUnavailableError: the driver cannot reach Redis; before any Spark job.
    """
    if not isinstance(queue, RedisMessageQueue):
        raise TypeError(f"queue must be a RedisMessageQueue, not a {type(queue).__name__}")
    _check(partitions, batch_size, lease_seconds, run_id)
    _check_end(until, deadline_seconds)
    if progress is not None and not isinstance(progress, bool) and not callable(progress):
        raise ConfigurationError(f"progress must be None, True, False or a function, not {progress!r}")
    spec = queue.spec()
    if spec.options.get("visibility_timeout_seconds", 1) is None:
        raise ConfigurationError(
            f"queue {queue.name!r} delivers at most once (visibility_timeout_seconds=None): a claim acks its messages, "
            "so a drain could give none back and retry none; drain it through an object with a visibility timeout"
        )
    handler = Handler.of(process, batch_format, schema)
    _check_travels(process)
    depth = depth_of(spec)
    _workers.prepare(spark)
    started, at = time.monotonic(), time.time()
    count = partitions if partitions is not None else _cores(spark)
    plan = DrainPlan(
        spec=spec.to_json(),
        run_id=uuid.uuid4().hex if run_id is None else run_id,
        batch_size=batch_size,
        lease_seconds=lease_seconds,
        handler=handler,
        partitions=count,
        limit=until if isinstance(until, int) else None,
        waits=until == "deadline",
        deadline_seconds=deadline_seconds,
        deadline_at=at + (deadline_seconds or 0),
        speculates=(spark.conf.get("spark.speculation", "false") or "").lower() == "true",
    )

    def task(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return run(plan, batches)

    tasks = _tasks(plan, depth, lambda: count if partitions is None else _cores(spark))
    with watching(spec, plan.run_id, progress), _workers.explaining():
        reports = spark.range(0, count, 1, tasks).mapInArrow(task, REPORT_SCHEMA)
        rows = reports.where(is_report()).collect()
    parts = sorted((PartitionSummary.from_dict(json.loads(row[0])) for row in rows), key=lambda part: part.partition)
    summary = DrainSummary(
        run_id=plan.run_id,
        queue=queue.name,
        partitions=tuple(parts),
        seconds=round(time.monotonic() - started, 3),
        skipped_ready=0 if run_id is None else _skipped(queue, plan.run_id, parts),
    )
    if summary.failures:
        raise DrainFailedError(
            f"drain {plan.run_id!r} of queue {queue.name!r}: {summary.describe_failures()}", summary=summary
        )
    return summary


def _skipped(queue: RedisMessageQueue, run_id: str, parts: Sequence[PartitionSummary]) -> int:
    """How many messages are ready that this call left alone for what an earlier one remembers; warns of them."""
    skipping = sum(part.remembered_empty for part in parts)
    if not skipping:
        return 0
    try:
        ready = depth_of(queue.spec()).ready
    except RedisMessageQueueError as error:  # the work is done, and its result must not be lost
        _log.warning("drain %r of queue %r cannot tell what it left: %s", run_id, queue.name, error)
        return 0
    if ready:
        say(
            logging.WARNING,
            f"drain {run_id!r} of queue {queue.name!r} left {ready} ready messages: {skipping} of {len(parts)} "
            "partitions found the queue empty in an earlier call with this run_id, and a repeated call takes that "
            "answer as its own for ten minutes. Give each scheduled run a run_id of its own, which only its retries "
            "share, or leave run_id out",
        )
    return ready


def _check(partitions: int | None, batch_size: int, lease_seconds: float, run_id: str | None) -> None:
    if partitions is not None and not _is_count(partitions, _MAX_PARTITIONS):
        raise ConfigurationError(f"partitions must be an int from 1 to {_MAX_PARTITIONS}, not {partitions!r}")
    if not _is_count(batch_size, MAX_CLAIM_LIMIT):
        raise ConfigurationError(f"batch_size must be an int from 1 to {MAX_CLAIM_LIMIT}, not {batch_size!r}")
    if not _is_life(lease_seconds):
        raise ConfigurationError(f"lease_seconds must be a number above 0, a year at most, not {lease_seconds!r}")
    if run_id is not None and (not isinstance(run_id, str) or not run_id.strip()):
        raise ConfigurationError(f"run_id must be a str with a visible character, not {run_id!r}")
    if run_id is not None and any("\ud800" <= character <= "\udfff" for character in run_id):
        raise ConfigurationError(f"run_id must be text that UTF-8 can carry, not {run_id!r}")


def _check_end(until: object, deadline_seconds: float | None) -> None:
    if not (isinstance(until, str) and until in ("empty", "deadline")) and not _is_count(until, 2**53):
        raise ConfigurationError(f"until must be 'empty', 'deadline' or a number of messages from 1 on, not {until!r}")
    if deadline_seconds is not None:
        checks.positive("deadline_seconds", deadline_seconds)
    if until == "deadline" and deadline_seconds is None:
        raise ConfigurationError("until='deadline' needs deadline_seconds: how long to claim and wait for messages")


def _check_travels(process: Callable[..., object]) -> None:
    """Spark's own error tells of a lock that somebody holds somewhere, and not what to do."""
    from pyspark import cloudpickle

    try:
        cloudpickle.dumps(process)  # type: ignore[no-untyped-call]
    except Exception as error:
        raise ConfigurationError(
            f"process cannot travel to the executors ({type(error).__name__}: {error}); it must hold no session, "
            "queue, client or open file: make these inside of it, a queue with RedisMessageQueue.from_spec(spec)"
        ) from error


def _is_count(value: object, most: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= most


def _is_life(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and 0 < value <= _MAX_LEASE_SECONDS


def _tasks(plan: DrainPlan, depth: Depth, cores: Callable[[], int]) -> int:
    """How many of Spark's tasks do the work of the partitions: no more than there are chunks, but one per core.

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
    """How many tasks Spark makes of a range by itself. Connect has no SparkContext to tell it, and makes one."""
    context = getattr(spark, "sparkContext", None)
    if context is not None:
        return min(_MAX_PARTITIONS, int(spark.conf.get(_PARALLELISM, None) or context.defaultParallelism))
    row = spark.range(_MAX_PARTITIONS).selectExpr("spark_partition_id() as p").selectExpr("max(p) + 1").first()
    assert row is not None
    return int(row[0])
