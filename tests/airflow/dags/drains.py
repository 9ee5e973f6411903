"""Drain by a function of this file, by the name of a function, and mapped; the queue is in the run's conf."""

from __future__ import annotations

import json
from datetime import timedelta
from pathlib import Path

from airflow.sdk import DAG, get_current_context
from tenacity import wait_none

from airflow_provider_sluicegate.operators.drain import RedisQueueDrainOperator
from sluicegate import DrainContext, Message

QUEUE = "{{ dag_run.conf['queue'] }}"


def store(batch: list[Message], ctx: DrainContext) -> None:
    """Write the numbers of a batch into a file per lease; a message that says so fails at its first delivery."""
    folder = Path(get_current_context()["dag_run"].conf["folder"])
    numbers = [message.json()["n"] for message in batch]
    if any(message.json().get("fails") and message.delivery_count == 1 for message in batch):
        raise ValueError("TEXT of the handler")
    ctx.output_file(folder, ".json").write_text(json.dumps(numbers))


with DAG(
    "drains",
    schedule=None,
    default_args={"redis_conn_id": "orders_redis", "retries": 1, "retry_delay": timedelta(seconds=1)},
) as dag:
    work = RedisQueueDrainOperator(
        task_id="work",
        queue_name=QUEUE,
        process=store,
        batch_size=10,
        lease_seconds=0.5,  # a run that meets its own failed message puts it off for as long
        queue_options={"retry_backoff": wait_none()},
    )
    work_each = RedisQueueDrainOperator.partial(
        task_id="work_each", process="tests.airflow.handlers:accept", workers=2
    ).expand(queue_name=[QUEUE + "-0", QUEUE + "-1"])
    nothing_left = RedisQueueDrainOperator(task_id="nothing_left", queue_name=QUEUE, process=store, skip_if_empty=True)
    [work, work_each] >> nothing_left
