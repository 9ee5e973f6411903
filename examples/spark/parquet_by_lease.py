"""Drain orders into Parquet files, one per lease: whatever crashes, a retry replaces its own file and nothing else.

The key of a lease names its id and its opening. Whoever takes the lease over after a crash has the same key and the
same orders: Spark's retry of a task, and a run with the same RUN_ID. Only where nobody does before the lease runs out
do its orders come back under another key; what was written, but not acked, is then in two files, under the same id.

Connects to REDIS_URL, or to redis://localhost:6379/0. FOLDER must be one that all executors see.

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
