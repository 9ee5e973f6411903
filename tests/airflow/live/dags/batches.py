"""Publish a batch, and wait in the triggerer until it has been drained; the queue is in the run's conf."""

from __future__ import annotations

from typing import Any

from airflow.sdk import DAG, task

from airflow_provider_sluicegate.operators.publish import RedisQueuePublishOperator
from airflow_provider_sluicegate.sensors.batch import RedisQueueBatchSensor

QUEUE = "{{ dag_run.conf['queue'] }}"


def rows() -> list[dict[str, Any]]:
    return [{"n": number} for number in range(20)]


with DAG("batches", schedule=None):
    publish = RedisQueuePublishOperator(
        task_id="publish", queue_name=QUEUE, messages=rows, batch_size=5, batch_id="rows/{{ run_id }}"
    )
    drained = RedisQueueBatchSensor(
        task_id="drained",
        queue_name=QUEUE,
        batch_id=publish.output["batch_id"],
        deferrable=True,
        poke_interval=0.2,
    )

    @task
    def after(found: dict[str, Any]) -> int:
        return int(found["done"])

    after(drained.output)
