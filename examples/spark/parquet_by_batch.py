"""Lease orders as one DataFrame, write it with Spark into a folder named by the lease, then ack.

For work that needs joins, shuffles or several outputs: any number of actions read the same rows. A rerun with the same
RUN_ID takes over what a crash left open, under the same key, and overwrites its own folder.

Connects to REDIS_URL, or to redis://localhost:6379/0.

Usage: python examples/spark/parquet_by_batch.py RUN_ID FOLDER
"""

import os
import sys
from pathlib import Path

from pyspark.sql import SparkSession

from sluicegate import RedisMessageQueue
from sluicegate.spark import lease_batch


def main(spark: SparkSession, queue: RedisMessageQueue, run_id: str, folder: Path) -> int:
    with lease_batch(spark, queue, 100_000, run_id=run_id) as batch:
        if not batch:
            return 0
        batch.df.write.mode("overwrite").parquet(f"{folder}/lease={batch.lease_key}")
        batch.ack()  # with nothing in between that could fail
        return batch.count


if __name__ == "__main__":
    orders = RedisMessageQueue("orders", url=os.environ.get("REDIS_URL", "redis://localhost:6379/0"))
    print(main(SparkSession.builder.getOrCreate(), orders, sys.argv[1], Path(sys.argv[2])), "orders written")
