"""The function that Spark maps over its partitions: the engine, with reports as Arrow batches.

Module-level functions are pickled by reference, so executors need this package. They need neither a session nor the
driver.
"""

from __future__ import annotations

import os
import pickle
import time
from collections.abc import Iterable, Iterator
from dataclasses import asdict
from typing import TYPE_CHECKING

from sluicegate.config import QueueSpec
from sluicegate.core import json
from sluicegate.draining.engine import DrainEngine
from sluicegate.draining.plan import DrainPlan
from sluicegate.opening import open_spec
from sluicegate.tables import arrays

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["REPORT_SCHEMA", "is_report", "run"]

REPORT_SCHEMA = "report string"
_KEEP_ALIVE_SECONDS = 1.0


def run(spec: str, pickled_plan: bytes, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Drain one partition per row, and answer one report for each.

    Between chunks, at most once a second, it sends a keep-alive for a Spark that ends workers which send nothing. A
    call of the handler sends nothing, so it must return within Spark's idle timeout, where one is set.

    Args:
        spec: the queue, as JSON.
        pickled_plan: of the drain, as `pickling.dumps` makes it.
        batches: the rows of a range: numbers of partitions.
    """
    from pyspark import TaskContext

    plan: DrainPlan = pickle.loads(pickled_plan)  # noqa: S301  (the driver's own bytes)
    task = TaskContext.get()
    attempt = task.attemptNumber() if task is not None else 0
    shown = time.monotonic()
    queue = open_spec(QueueSpec.from_json(spec))
    for batch in batches:
        for partition in batch.column(0).to_pylist():
            engine = DrainEngine(plan, queue, partition, attempt)
            for _ in engine.steps():
                if time.monotonic() - shown >= _KEEP_ALIVE_SECONDS:
                    yield _answer(_keep_alive())
                    shown = time.monotonic()
            yield _answer(json.dumps(asdict(engine.summary())).decode())
    queue.close()  # not after an error: that would release the lease that a retry takes over


def is_report(column: str = "report") -> str:
    """Return the SQL condition by which Spark drops keep-alives before they reach the driver."""
    return f"{column} NOT LIKE ' %'"


def _answer(text: str) -> pa.RecordBatch:
    import pyarrow as pa

    return pa.RecordBatch.from_arrays([arrays.texts([text.encode()])], names=["report"])


def _keep_alive() -> str:
    """Return a text larger than the buffer between a worker and Spark, in which an empty batch would be stuck."""
    return " " * int(os.environ.get("SPARK_BUFFER_SIZE", "65536"))
