"""Drain orders into Parquet files, one per lease: after any crash, a retry replaces its own file and nothing else.

The key of a lease names its id and its opening. Spark's retry of a task, or a run with the same RUN_ID, takes the lease
over after a crash, with the same key and the same orders. If nothing takes it over before it expires, its orders are
redelivered under another key. Orders that were written but not acked are then in two files, with the same message id.

Connects to REDIS_URL, or to redis://localhost:6379/0. All executors must see FOLDER.

Usage: python examples/spark/parquet_by_lease.py RUN_ID FOLDER
"""

import os
import sys
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import SparkSession

from sluicegate import RedisMessageQueue
from sluicegate.spark import DrainContext, DrainSummary, drain


def writer(folder: Path) -> Callable[[pa.Table, DrainContext], None]:
    def write(batch: pa.Table, ctx: DrainContext) -> None:
        pq.write_table(batch, ctx.output_file(folder, ".parquet"))

    return write


def main(spark: SparkSession, queue: RedisMessageQueue, run_id: str, folder: Path) -> DrainSummary:
    return drain(spark, queue, writer(folder), run_id=run_id)


if __name__ == "__main__":
    orders = RedisMessageQueue("orders", url=os.environ.get("REDIS_URL", "redis://localhost:6379/0"))
    summary = main(SparkSession.builder.getOrCreate(), orders, sys.argv[1], Path(sys.argv[2]))
    print(summary.acked, "orders in", sum(part.chunks for part in summary.partitions), "files")
