"""Publish, wait in the triggerer, drain. The queue, the folder and the number of messages are in the run's conf."""

from __future__ import annotations

from typing import Any

from airflow.sdk import DAG

from airflow_provider_sluicegate.operators.drain import RedisQueueDrainOperator
from airflow_provider_sluicegate.operators.publish import RedisQueuePublishOperator
from airflow_provider_sluicegate.sensors.redis_queue import RedisQueueSensor
from tests.support import handlers

QUEUE = "{{ dag_run.conf['queue'] }}"


def make(dag_run: Any) -> list[dict[str, Any]]:
    return handlers.messages(dag_run.conf["folder"], dag_run.conf["count"])


with DAG("gate", schedule=None):
    publish = RedisQueuePublishOperator(task_id="publish", queue_name=QUEUE, messages=make)
    gate = RedisQueueSensor(
        task_id="gate",
        queue_name=QUEUE,
        min_ready="{{ dag_run.conf['count'] }}",
        poke_interval=1,
        timeout=120,
        start_from_trigger=True,
    )
    drain = RedisQueueDrainOperator(task_id="drain", queue_name=QUEUE, process=handlers.record, batch_size=10)
    publish >> gate >> drain
