"""Lease orders as DataFrames, write each with Spark into a folder named by its leases, then ack.

Use it for work that needs joins, shuffles or several outputs: any number of actions read the same rows. A rerun with
the same RUN_ID takes over the leases of a crashed run, under the same key, and overwrites its own folder. An error
keeps the leases for such a rerun, because a write that failed at its end may have left all of its files.

Connects to REDIS_URL, or to redis://localhost:6379/0.

Usage: python examples/spark/parquet_by_batch.py RUN_ID FOLDER
"""

import itertools
import os
import sys
from pathlib import Path

from pyspark.sql import SparkSession

from sluicegate import LeaseState, RedisMessageQueue
from sluicegate.spark import lease_batch


def main(spark: SparkSession, queue: RedisMessageQueue, run_id: str, folder: Path) -> int:
    written = 0
    for number in itertools.count():
        with lease_batch(spark, queue, 100_000, run_id=f"{run_id}/{number}", on_error="keep") as batch:
            if batch:
                batch.df.write.mode("overwrite").parquet(f"{folder}/batch={batch.lease_key}")
                batch.ack()  # directly after the write, so that nothing can fail in between
                written += batch.counts.acked
            elif batch.state is not LeaseState.ACKED:  # an earlier try acked this batch: continue with the next
                return written
    raise AssertionError("unreachable: numbers have no end")


if __name__ == "__main__":
    orders = RedisMessageQueue("orders", url=os.environ.get("REDIS_URL", "redis://localhost:6379/0"))
    print(main(SparkSession.builder.getOrCreate(), orders, sys.argv[1], Path(sys.argv[2])), "orders written")
