"""Stream orders into two sinks: an archive of Parquet files, and totals per customer in a database.

Spark repeats a micro-batch if it does not know that the batch is done. Both sinks therefore use the ids of the query
and of the batch, so that a repeated batch replaces itself. The checkpoint numbers the batches: a new checkpoint starts
at 0 with a new query id.

Connects to REDIS_URL, or to redis://localhost:6379/0. Drains what is there and ends.

Usage: python examples/spark/foreach_batch.py FOLDER
"""

import os
import sqlite3
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from sluicegate import RedisMessageQueue
from sluicegate.spark import options

ORDER = "order_id string, customer string, amount double, message_id string"
TABLE = "CREATE TABLE IF NOT EXISTS totals (query TEXT, batch INT, customer TEXT, amount REAL)"


def sinks(folder: Path) -> Callable[[DataFrame, int], None]:
    def write(orders: DataFrame, batch: int) -> None:
        query = orders.sparkSession.sparkContext.getLocalProperty("sql.streaming.queryId")
        orders.persist()  # otherwise each action reads the batch again
        try:
            orders.write.mode("overwrite").parquet(f"{folder}/archive/query={query}/batch={batch}")
            totals = orders.groupBy("customer").agg(F.sum("amount")).collect()
        finally:
            orders.unpersist()
        with closing(sqlite3.connect(folder / "totals.db", timeout=60)) as database, database:
            database.execute(TABLE)
            database.execute("DELETE FROM totals WHERE query = ? AND batch = ?", (query, batch))
            database.executemany("INSERT INTO totals VALUES (?, ?, ?, ?)", [(query, batch, *row) for row in totals])

    return write


def main(spark: SparkSession, queue: RedisMessageQueue, folder: Path) -> None:
    orders = spark.readStream.format("sluicegate").schema(ORDER).options(**options(queue), consumer="archive").load()
    query = (
        orders.writeStream.foreachBatch(sinks(folder))
        .option("checkpointLocation", f"{folder}/checkpoint")
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()


if __name__ == "__main__":
    queue = RedisMessageQueue("orders", url=os.environ.get("REDIS_URL", "redis://localhost:6379/0"))
    main(SparkSession.builder.getOrCreate(), queue, Path(sys.argv[1]))
