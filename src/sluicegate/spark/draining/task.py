"""The function that Spark maps over its partitions.

Module-level functions travel by reference, so executors need this package; they need neither a session nor the driver.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Iterator
from dataclasses import asdict
from typing import TYPE_CHECKING

from sluicegate.core import json
from sluicegate.queue import RedisMessageQueue
from sluicegate.spark.draining.partition import PartitionDrain
from sluicegate.spark.draining.plan import DrainPlan
from sluicegate.spark.draining.routing import queue_of

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["REPORT_SCHEMA", "is_report", "run"]

REPORT_SCHEMA = "report string"
_SIGN_SECONDS = 1.0


def run(plan: DrainPlan, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Drain once per row, and answer with one report each.

    Between chunks, at most once a second, it shows that it lives, for a Spark that ends workers which send nothing. A
    call of the handler shows nothing: it must end within Spark's idle timeout, where one is set.
    """
    from pyspark import TaskContext

    task = TaskContext.get()
    attempt = task.attemptNumber() if task is not None else 0
    shown = time.monotonic()
    queues: dict[str, RedisMessageQueue] = {}  # what the partitions of a task drain is one and the same, as a rule
    for batch in batches:
        for partition in batch.column(0).to_pylist():
            spec = queue_of(plan.spec, partition)
            name = spec.to_json()
            if name not in queues:
                queues[name] = RedisMessageQueue.from_spec(spec)
            drain = PartitionDrain(plan, partition, attempt, queues[name])
            for _ in drain.steps():
                if time.monotonic() - shown >= _SIGN_SECONDS:
                    yield _answer(_sign_of_life())
                    shown = time.monotonic()
            yield _answer(json.dumps(asdict(drain.summary())).decode())
    for queue in queues.values():  # not after an error: it would release the lease that a retry is to take over
        queue.close()


def is_report(column: str = "report") -> str:
    """The SQL condition by which Spark drops signs of life before they reach the driver."""
    return f"{column} NOT LIKE ' %'"


def _answer(text: str) -> pa.RecordBatch:
    import pyarrow as pa

    return pa.RecordBatch.from_arrays([pa.array([text], pa.string())], names=["report"])


def _sign_of_life() -> str:
    """More than the buffer between a worker and Spark holds: an empty batch would stay in it, unseen."""
    return " " * int(os.environ.get("SPARK_BUFFER_SIZE", "65536"))
