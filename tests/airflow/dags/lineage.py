"""Read and write queues in each of the ways that lineage knows. The queue is in the run's conf."""

from __future__ import annotations

from typing import Any

from airflow.sdk import DAG, task

from airflow_provider_sluicegate.assets.redis_queue import create_asset
from airflow_provider_sluicegate.hooks.redis_queue import RedisQueueHook
from airflow_provider_sluicegate.operators.consume import RedisQueueConsumeOperator
from airflow_provider_sluicegate.operators.drain import RedisQueueDrainOperator
from airflow_provider_sluicegate.operators.publish import RedisQueuePublishOperator

QUEUE = "{{ dag_run.conf['queue'] }}"


def forward(batch: list[Any]) -> None:
    """Publish what was read to another queue."""
    with RedisQueueHook() as hook:
        hook.get_queue("forwarded").publish_many([message.payload for message in batch])


with DAG("lineage", schedule=None) as dag:
    # The word that the test looks for is not in this file, which Airflow stores. It is no other test's word, because
    # Airflow stores what the consume operator returns, too.
    publish = RedisQueuePublishOperator(task_id="publish", queue_name=QUEUE, messages=[{"note": "finch".upper()}] * 5)
    consume = RedisQueueConsumeOperator(task_id="consume", queue_name=QUEUE, max_messages=2)
    drain = RedisQueueDrainOperator(task_id="drain", queue_name=QUEUE, process=forward)

    @task
    def move() -> None:
        with RedisQueueHook() as hook, hook.get_queue("forwarded").claim(10) as lease:
            target = hook.get_queue("moved")
            for message in lease:
                target.publish(message.payload)

    @task(inlets=[create_asset(queue_name="declared")])
    def declare() -> None: ...

    publish >> consume >> drain >> move() >> declare()
