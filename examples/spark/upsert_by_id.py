"""Drain orders into a database table by message id: a redelivered order replaces its own row.

A message keeps its id through crashes, retries and redeliveries, so the id is the only key that the table needs.
PostgreSQL accepts the same statement; other databases use `MERGE` or `INSERT IGNORE`.

Connects to REDIS_URL, or to redis://localhost:6379/0.

Usage: python examples/spark/upsert_by_id.py RUN_ID DATABASE
"""

import os
import sqlite3
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

from pyspark.sql import SparkSession

from sluicegate import Message, RedisMessageQueue
from sluicegate.spark import DrainSummary, drain

TABLE = "CREATE TABLE IF NOT EXISTS orders (message_id TEXT PRIMARY KEY, order_id TEXT, amount REAL)"
UPSERT = (
    "INSERT INTO orders VALUES (?, ?, ?) "
    "ON CONFLICT (message_id) DO UPDATE SET order_id = excluded.order_id, amount = excluded.amount"
)


def writer(database: Path) -> Callable[[list[Message]], None]:
    def write(batch: list[Message]) -> None:
        orders = [(message.id, message.json()) for message in batch]
        rows = [(name, order["order_id"], order["amount"]) for name, order in orders]
        # One transaction per batch: its rows are committed together, before the batch is acked.
        with closing(sqlite3.connect(database, timeout=60)) as connection, connection:
            connection.executemany(UPSERT, rows)

    return write


def main(spark: SparkSession, queue: RedisMessageQueue, run_id: str, database: Path) -> DrainSummary:
    with closing(sqlite3.connect(database)) as connection, connection:
        connection.execute(TABLE)
    return drain(spark, queue, writer(database), run_id=run_id)


if __name__ == "__main__":
    queue = RedisMessageQueue("orders", url=os.environ.get("REDIS_URL", "redis://localhost:6379/0"))
    print(main(SparkSession.builder.getOrCreate(), queue, sys.argv[1], Path(sys.argv[2])).acked, "orders upserted")
