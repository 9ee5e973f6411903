"""Publish in one DAG, and run another one whenever the queue's gate opens.

Use it when producer and consumer belong to different teams or schedules: the consumer has no schedule, and no task
that waits. The triggerer watches the queue; when 1,000 orders are ready, or one has waited a minute, the consumer runs.

What happens on failure:
- The consumer's run fails, or Airflow loses the event: the messages stay in the queue, and the gate fires again when
  nothing was claimed for `refire_after_seconds`.
- The triggerer restarts: an open gate fires again, so a run may find an empty queue. It is then skipped.
- Redis is away: the watcher waits, and the triggerer's log has one warning a minute.

It needs the connection `sluicegate_default` and a triggerer. The publish has no outlet: it would start the consumer
after every publish, before the gate is open.
"""

from __future__ import annotations

import json

from airflow.sdk import DAG, Asset, AssetWatcher

from airflow_provider_sluicegate.operators.drain import RedisQueueDrainOperator
from airflow_provider_sluicegate.operators.publish import RedisQueuePublishOperator
from airflow_provider_sluicegate.triggers.event import RedisQueueEventTrigger
from sluicegate import DrainContext, Message

QUEUE = "example-by-asset"
STORED = "/data/by_asset"


def make_orders() -> list[dict[str, int]]:
    """Return the orders of the last hour; in your DAG, rows of a SQL hook or of an API."""
    return [{"order_id": number, "cents": 100 + number} for number in range(2500)]


def store(batch: list[Message], ctx: DrainContext) -> None:
    """Write one file per lease: whoever takes the lease over after a crash replaces this file and no other."""
    lines = [json.dumps(message.json()) + "\n" for message in batch]
    ctx.output_file(STORED, ".jsonl").write_text("".join(lines))


gate = RedisQueueEventTrigger(queue_name=QUEUE, min_ready=1000, max_age_seconds=60, refire_after_seconds=120)
orders_wait = Asset("example-orders-wait", watchers=[AssetWatcher(name="gate", trigger=gate)])

with DAG("by_asset_producer", schedule="@hourly", catchup=False, tags=["sluicegate"]):
    RedisQueuePublishOperator(
        task_id="publish", queue_name=QUEUE, messages=make_orders, deduplication_key="order_id", retries=2
    )

with DAG("by_asset_consumer", schedule=[orders_wait], tags=["sluicegate"]):
    RedisQueueDrainOperator(task_id="drain", queue_name=QUEUE, process=store, skip_if_empty=True, retries=2)
