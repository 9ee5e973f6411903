"""Drain with Spark by a function of this file; the queue and the folder are in the run's conf."""

from __future__ import annotations

import json
import os
from datetime import timedelta

from airflow.sdk import DAG
from tenacity import wait_fixed

from airflow_provider_sluicegate.operators.spark import SparkRedisQueueDrainOperator
from sluicegate import DrainContext, Message

QUEUE = "{{ dag_run.conf['queue'] }}"
FOLDER = os.environ["SLUICEGATE_TEST_FOLDER"]


def store(batch: list[Message], ctx: DrainContext) -> None:
    """Write the numbers of a batch into a file per lease; a message that says so fails at its first delivery."""
    numbers = [message.json()["n"] for message in batch]
    if any(message.json().get("fails") and message.delivery_count == 1 for message in batch):
        raise ValueError("TEXT of the handler")
    ctx.output_file(FOLDER, ".json").write_text(json.dumps(numbers))


with DAG(
    "spark_drains",
    schedule=None,
    default_args={
        "redis_conn_id": "orders_redis",
        "conn_id": "{{ dag_run.conf['spark'] }}",
        "partitions": 2,
        "retries": 1,
        "retry_delay": timedelta(seconds=3),
    },
) as dag:
    work = SparkRedisQueueDrainOperator(
        task_id="work",
        queue_name=QUEUE,
        process=store,
        config_kwargs={"spark.app.name": "drain of " + QUEUE},
        batch_size=10,
        lease_seconds=3,  # a run that meets its own failed message puts it off for as long
        queue_options={"retry_backoff": wait_fixed(0.01)},
    )
    nothing_left = SparkRedisQueueDrainOperator(
        task_id="nothing_left", queue_name=QUEUE, process="tests.airflow.handlers:accept", skip_if_empty=True
    )
    work >> nothing_left
