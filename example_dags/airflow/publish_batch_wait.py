"""Publish a batch, and continue when all of it has been drained, whoever drained it.

Use it when the drain is not yours to put into the DAG: another team's DAG, a Spark application or workers drain the
queue, and your next task needs their results. The sensor waits in the triggerer, and counts instead of listing: its
cost does not grow with the batch.

What happens on failure:
- The publish is retried: it rejoins the batch of its run and publishes what is missing, nothing twice.
- A message fails again and again: it becomes a dead letter, and the sensor fails. Redrive it, and clear the sensor,
  which then waits for it. With `on_dead="ignore"` the run continues, and the report counts it.
- Workers crash or Redis is away: the messages are delivered again, and the sensor waits.

It needs the connection `sluicegate_default` and a triggerer. The second DAG stands for whoever drains.
"""

from __future__ import annotations

import json
from typing import Any

from airflow.sdk import DAG, Asset, AssetWatcher, task

from airflow_provider_sluicegate.operators.drain import RedisQueueDrainOperator
from airflow_provider_sluicegate.operators.publish import RedisQueuePublishOperator
from airflow_provider_sluicegate.sensors.batch import RedisQueueBatchSensor
from airflow_provider_sluicegate.triggers.event import RedisQueueEventTrigger
from sluicegate import DrainContext, Message

QUEUE = "example-batch"
STORED = "/data/batch"


def make_orders() -> list[dict[str, int]]:
    """Return the orders of the last hour; in your DAG, rows of a SQL hook or of an API, always in the same order."""
    return [{"order_id": number, "cents": 100 + number} for number in range(2500)]


def store(batch: list[Message], ctx: DrainContext) -> None:
    """Write one file per lease: whoever takes the lease over after a crash replaces this file and no other."""
    lines = [json.dumps(message.json()) + "\n" for message in batch]
    ctx.output_file(STORED, ".jsonl").write_text("".join(lines))


orders_wait = Asset(
    "example-batch-waits", watchers=[AssetWatcher(name="gate", trigger=RedisQueueEventTrigger(queue_name=QUEUE))]
)

with DAG("publish_batch_wait", schedule="@hourly", catchup=False, tags=["sluicegate"]):
    publish = RedisQueuePublishOperator(
        task_id="publish", queue_name=QUEUE, messages=make_orders, batch_id="orders/{{ run_id }}", retries=2
    )
    drained = RedisQueueBatchSensor(
        task_id="drained",
        queue_name=QUEUE,
        batch_id=publish.output["batch_id"],
        deferrable=True,
        poke_interval=10,
        timeout=6 * 3600,
    )

    @task
    def close_books(batch: dict[str, Any]) -> str:
        return f"{batch['done']} of {batch['total']} orders are stored, since {batch['completed_at']}"

    close_books(drained.output)

with DAG("publish_batch_wait_drain", schedule=[orders_wait], tags=["sluicegate"]):
    RedisQueueDrainOperator(task_id="drain", queue_name=QUEUE, process=store, skip_if_empty=True, retries=2)
