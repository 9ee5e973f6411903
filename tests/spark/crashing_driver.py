"""A driver that is killed between write and ack, in three recipes at once: one session, one death.

Usage: python -m tests.spark.crashing_driver SPECS FOLDER     SPECS: of three queues, as a JSON list
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sluicegate import QueueSpec, RedisMessageQueue
from sluicegate.spark.leasing.batch import LeasedBatch
from tests.spark.recipes import recipe

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["main"]

_WRITTEN = threading.Semaphore(0)


def main(specs: list[str], folder: Path) -> None:
    """Run the recipes, each in a thread, until each has written what it was about to ack."""
    spark = _session(folder)
    LeasedBatch.ack = lambda batch: _stay()  # type: ignore[method-assign]
    by_batch, delta, foreach = (recipe(name) for name in ("parquet_by_batch", "delta_by_transaction", "foreach_batch"))
    foreach.sinks = _staying(foreach.sinks)
    queues = [RedisMessageQueue.from_spec(QueueSpec.from_json(spec)) for spec in specs]
    works: list[Callable[[], Any]] = [
        lambda: by_batch.main(spark, queues[0], "nightly", folder / "parquet"),
        lambda: delta.main(spark, queues[1], "nightly", str(folder / "delta")),
        lambda: foreach.main(spark, queues[2], folder / "stream"),
    ]
    for work in works:  # one after the other: each starts Python processes, for which Spark waits ten seconds only
        threading.Thread(target=_run, args=[work], daemon=True).start()
        _WRITTEN.acquire()
    os.kill(os.getpid(), signal.SIGKILL)


def _run(work: Callable[[], Any]) -> None:
    """End the whole process if a driver ends in another way, so that no test waits for it."""
    try:
        work()
    except BaseException:
        traceback.print_exc()
    sys.stderr.flush()
    os._exit(1)


def _staying(sinks: Callable[[Path], Callable[[DataFrame, int], None]]) -> Callable[[Path], Callable[..., None]]:
    def staying_sinks(folder: Path) -> Callable[[DataFrame, int], None]:
        write = sinks(folder)

        def staying(rows: DataFrame, batch: int) -> None:
            write(rows, batch)
            if not rows.isEmpty():
                _stay()

        return staying

    return staying_sinks


def _stay() -> None:
    """Say that it has written, and get no further."""
    _WRITTEN.release()
    threading.Event().wait()


def _session(folder: Path) -> SparkSession:
    from pyspark.sql import SparkSession

    return (
        SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.memory", "1g")
        .config("spark.sql.warehouse.dir", str(folder / "warehouse"))
        .getOrCreate()
    )


if __name__ == "__main__":
    main(json.loads(sys.argv[1]), Path(sys.argv[2]))
