"""Publish in plain and in mapped tasks from what stands in this file. The queue is in the run's conf."""

from __future__ import annotations

from typing import Any

from airflow.sdk import DAG, Asset

from airflow_provider_sluicegate.operators.publish import RedisQueuePublishOperator

QUEUE = "{{ dag_run.conf['queue'] }}"
ORDERS = Asset("orders-that-are-published")


def notes(count: int) -> list[dict[str, Any]]:
    # Airflow stores this file, so the word that the test looks for is not in it.
    return [{"note": "canary".upper(), "number": number} for number in range(count)]


with DAG("publishes", schedule=None) as dag:
    plain = RedisQueuePublishOperator(
        task_id="plain", queue_name=QUEUE, messages=notes(5), deduplication_key="position", outlets=[ORDERS]
    )
    due = RedisQueuePublishOperator(
        task_id="due",
        queue_name=QUEUE + "-due",
        messages=notes(1),
        due_at="{{ dag_run.run_after + macros.timedelta(days=36500) }}",
    )
    same = RedisQueuePublishOperator.partial(task_id="same", messages=notes(2), deduplication_key="position").expand(
        queue_name=[QUEUE + "-same", QUEUE + "-same"]
    )
    called = RedisQueuePublishOperator.partial(task_id="called", queue_name=QUEUE, messages=lambda: notes(1)).expand(
        headers=[{"shard": "0"}, {"shard": "1"}]
    )
    each = RedisQueuePublishOperator.partial(task_id="each", queue_name=QUEUE + "-each").expand(
        messages=[notes(1), notes(3), lambda: notes(2)]
    )
    listed = RedisQueuePublishOperator.partial(task_id="listed").expand_kwargs(
        [
            {"queue_name": QUEUE + "-listed", "messages": notes(2)},
            {"queue_name": QUEUE + "-listed", "messages": (note for note in notes(4))},
        ]
    )
    plain >> due >> same >> called >> each >> listed
