"""Append leased orders to a Delta table in a transaction that the table remembers, then ack.

The table's log keeps the last version of each application that wrote to it, so a batch whose ack was lost is found
there. `deltalake` writes without Java packages. With Delta's own Spark package the append is one statement, and Delta
compares the versions itself:

    to_table = batch.df.write.format("delta").mode("append")
    to_table.option("txnAppId", application).option("txnVersion", version).save(table)

Connects to REDIS_URL, or to redis://localhost:6379/0. Needs `pip install deltalake`.

Usage: python examples/spark/delta_by_transaction.py RUN_ID TABLE
"""

import os
import sys

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake
from pyspark.sql import SparkSession

from sluicegate import RedisMessageQueue
from sluicegate.spark import lease_batch


def append_once(table: str, rows: pa.Table, application: str, version: int) -> bool:
    """Append unless the table already has this version of the application, or a later one."""
    target: DeltaTable | str = table
    if DeltaTable.is_deltatable(table):
        target = DeltaTable(table)
        last = target.transaction_version(application)
        if last is not None and last >= version:
            return False
    # If another writer commits the same application meanwhile, this fails instead of writing twice.
    mark = CommitProperties(app_transactions=[Transaction(application, version)])
    write_deltalake(target, rows, mode="append", commit_properties=mark)
    return True


def main(spark: SparkSession, queue: RedisMessageQueue, run_id: str, table: str) -> int:
    with lease_batch(spark, queue, 100_000, run_id=run_id, on_error="keep") as batch:
        if not batch:
            return batch.counts.acked  # acked by an earlier try of this run, if any
        append_once(table, batch.df.toArrow(), *batch.txn)
        batch.ack()  # directly after the write, so that nothing can fail in between
        return batch.counts.acked


if __name__ == "__main__":
    orders = RedisMessageQueue("orders", url=os.environ.get("REDIS_URL", "redis://localhost:6379/0"))
    print(main(SparkSession.builder.getOrCreate(), orders, sys.argv[1], sys.argv[2]), "orders appended")
