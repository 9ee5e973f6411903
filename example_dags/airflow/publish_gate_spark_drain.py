"""Publish a file of orders, wait until enough have arrived, and let Spark write them as Parquet files.

Use it for data that arrives in pieces and is cheap to process only in batches: small files from many shops, a table
that is read every hour, events of an API. Runs overlap safely, because the queue hands each message to one of them.

What happens on failure:
- The publish fails midway: its retry publishes what is missing, because every order has a deduplication key.
- Redis is away: the gate waits in the triggerer until it is back; the other two tasks are retried.
- A worker or a Spark executor is killed: the drain's retry takes over the batch that it held, and replaces its file.
- An order cannot be written: the drain acks all others and fails; after ten deliveries that order is a dead letter.

It needs the connection `sluicegate_default`, a triggerer, and `sluicegate[airflow,spark]` on the worker. The drain runs
Spark inside the task; for a cluster or Spark Connect give it a `conn_id`.
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

from airflow.sdk import DAG

from airflow_provider_sluicegate.operators.publish import RedisQueuePublishOperator
from airflow_provider_sluicegate.operators.spark import SparkRedisQueueDrainOperator
from airflow_provider_sluicegate.sensors.redis_queue import RedisQueueSensor

if TYPE_CHECKING:
    import pyarrow as pa

    from sluicegate import DrainContext

QUEUE = "example-orders"
INCOMING = "/data/incoming"
STORED = "/data/orders"


def store(orders: pa.Table, ctx: DrainContext) -> None:
    """Write one file per lease: whoever takes the lease over after a crash replaces this file and no other."""
    import pyarrow.parquet as pq

    pq.write_table(orders, ctx.output_file(STORED, ".parquet"))


with DAG(
    "publish_gate_spark_drain",
    schedule="@daily",
    catchup=False,
    default_args={"retries": 2, "retry_delay": timedelta(minutes=1)},
    tags=["sluicegate"],
):
    publish = RedisQueuePublishOperator(
        task_id="publish",
        queue_name=QUEUE,
        path=INCOMING + "/{{ dag_run.run_after | ds }}.jsonl.gz",
        deduplication_key="{tenant}:{order_id}",
    )
    gate = RedisQueueSensor(
        task_id="gate", queue_name=QUEUE, min_ready=1000, max_age_seconds=600, deferrable=True, poke_interval=5
    )
    drain = SparkRedisQueueDrainOperator(
        task_id="drain",
        queue_name=QUEUE,
        process=store,
        schema="tenant string, order_id long, amount double",
        partitions=4,
    )
    publish >> gate >> drain
