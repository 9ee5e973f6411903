"""One publish to a stream, and two tasks that drain it independently; the stream is in the run's conf."""

from __future__ import annotations

from typing import Any

from airflow.sdk import DAG, task

from airflow_provider_sluicegate.operators.drain import RedisQueueDrainOperator
from airflow_provider_sluicegate.operators.publish import RedisQueuePublishOperator
from airflow_provider_sluicegate.sensors.redis_queue import RedisQueueSensor

STREAM = "{{ dag_run.conf['stream'] }}"


def rows() -> list[dict[str, Any]]:
    return [{"n": number} for number in range(40)]


def count(batch: list[Any]) -> None: ...


with DAG("streams", schedule=None, default_args={"stream": STREAM}):
    publish = RedisQueuePublishOperator(task_id="publish", messages=rows, deduplication_key="n")
    gate = RedisQueueSensor(task_id="gate", group="billing", min_ready=40, deferrable=True, poke_interval=0.02)
    bill = RedisQueueDrainOperator(task_id="bill", group="billing", process=count)

    @task.redis_queue(group="audit")
    def audit(batch: list[Any]) -> None: ...

    publish >> gate >> [bill, audit()]
