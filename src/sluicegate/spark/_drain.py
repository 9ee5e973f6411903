"""The driver's side of a drain."""

from __future__ import annotations

import math
import time
import uuid
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING

from sluicegate.core import json
from sluicegate.errors import ConfigurationError, DrainFailedError
from sluicegate.queue import RedisMessageQueue
from sluicegate.spark import _task
from sluicegate.spark._handler import BatchFormat, Handler
from sluicegate.spark.summary import DrainSummary, PartitionSummary

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

__all__ = ["drain"]

_MOST_CLAIMED = 10_000
_MOST_PARTITIONS = 10_000


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
) -> DrainSummary:
    """Claim, work on and settle what is ready, in Spark's executors, until the queue is empty or paused.

    Each partition claims chunk after chunk, one lease each, calls `process(batch)` or `process(batch, ctx)`, and acks
    what it returned from. A heartbeat keeps the lease while the handler works. Delivery is at least once: a task that
    Spark retries takes its own open lease over at once, with the same messages and the same `ctx.lease_key`, and finds
    what it has finished acked.

    What the handler raises is caught. A failed chunk is halved until the culprits are alone; they are nacked with the
    error and a growing delay (or buried, at their last delivery), and the others are acked. A handler that fails at
    everything ends its partition; the other partitions go on. A handler that raises must leave no output behind: write
    under a temporary name and rename as the last step, see `DrainContext`. Anything else that goes wrong (Redis, a lost
    lease, a killed worker) is left to Spark's own retries.

    Watch a drain from the driver with `queue.depth()`: `ready` falls, `in_flight` is what the partitions hold.

    Args:
        spark: a session, classic or Connect. Executors need this package, `pyarrow`, a way to Redis, and the variable
            that holds its password.
        queue: what to drain; it must be able to travel, so made from a `url` without a literal password.
        process: a plain function of a batch and optionally a `DrainContext`; its result is ignored. It travels as Spark
            pickles functions: what it needs from your own modules must be importable on the executors.
        partitions: tasks, each with its own leases; default as many as Spark makes by itself for a range.
        batch_size: most messages of a chunk, from 1 to 10,000. Messages that failed before come in smaller ones.
        lease_seconds: how long a lease outlives a worker that has died without a retry; renewed every third of it.
        run_id: names the work; default a fresh one. An orchestrator passes one that is the same for every try, and that
            one driver uses at a time, with the same number of partitions: then a retry takes over what an earlier try
            left open, repeats nothing that it finished (remembered for a day), and goes on with what came back from a
            failure.
        batch_format: `"messages"` (a list of `Message`, the default) or `"arrow"` (a `pyarrow.Table` with the columns
            id, payload, headers, deduplication_key, delivery_count, sequence and enqueued_at); also by the annotation
            of the function's first parameter.

    Raises:
        DrainFailedError: the handler failed on some messages; raised after all partitions have ended, with the
            `summary`.
        ConfigurationError: something that cannot work as given, before any Spark job: a queue that cannot travel, a
            session with `spark.speculation=true`, an argument out of range.
    """
    if not isinstance(queue, RedisMessageQueue):
        raise TypeError(f"queue must be a RedisMessageQueue, not a {type(queue).__name__}")
    _check(partitions, batch_size, lease_seconds, run_id)
    plan = _task.DrainPlan(
        spec=queue.spec().to_json(),
        run_id=uuid.uuid4().hex if run_id is None else run_id,
        batch_size=batch_size,
        lease_seconds=lease_seconds,
        handler=Handler.of(process, batch_format),
    )
    _refuse_speculation(spark)
    count = partitions if partitions is not None else _default_partitions(spark)

    def task(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return _task.run(plan, batches)

    start = time.monotonic()
    rows = spark.range(0, count, 1, count).mapInArrow(task, _task.REPORT_SCHEMA).collect()
    reports = (PartitionSummary.from_dict(json.loads(row[0])) for row in rows)
    summary = DrainSummary(
        run_id=plan.run_id,
        queue=queue.name,
        partitions=tuple(sorted(reports, key=lambda report: report.partition)),
        seconds=round(time.monotonic() - start, 3),
    )
    if summary.failures:
        raise DrainFailedError(
            f"drain {plan.run_id!r} of queue {queue.name!r}: {summary.describe_failures()}", summary=summary
        )
    return summary


def _check(partitions: int | None, batch_size: int, lease_seconds: float, run_id: str | None) -> None:
    if partitions is not None and not _is_count(partitions, _MOST_PARTITIONS):
        raise ConfigurationError(f"partitions must be an int from 1 to {_MOST_PARTITIONS}, not {partitions!r}")
    if not _is_count(batch_size, _MOST_CLAIMED):
        raise ConfigurationError(f"batch_size must be an int from 1 to {_MOST_CLAIMED}, not {batch_size!r}")
    if (
        isinstance(lease_seconds, bool)
        or not isinstance(lease_seconds, (int, float))
        or not 0 < lease_seconds < math.inf
    ):
        raise ConfigurationError(f"lease_seconds must be a number above 0, not {lease_seconds!r}")
    if run_id is not None and (not isinstance(run_id, str) or not run_id.strip()):
        raise ConfigurationError(f"run_id must be a str with a visible character, not {run_id!r}")


def _is_count(value: object, most: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= most


def _refuse_speculation(spark: SparkSession) -> None:
    """Two live attempts of one task would take the same lease from each other until one of them fails the job."""
    if (spark.conf.get("spark.speculation", "false") or "").lower() == "true":
        raise ConfigurationError(
            "spark.speculation is true: a speculative copy of a task would take over the lease of the one that is "
            "still at work, and both would work on the same messages; set spark.speculation=false where you drain"
        )


def _default_partitions(spark: SparkSession) -> int:
    """How many tasks Spark makes of a range by itself: asked with a range, because Connect has no SparkContext."""
    row = spark.range(_MOST_PARTITIONS).selectExpr("spark_partition_id() as p").selectExpr("max(p) + 1").first()
    assert row is not None
    return int(row[0])
