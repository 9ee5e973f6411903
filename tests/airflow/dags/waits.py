"""A sensor that waits in the triggerer, and a task behind it. The queue is in the run's conf."""

from __future__ import annotations

from typing import Any

from airflow.sdk import DAG, task

from airflow_provider_sluicegate.sensors.redis_queue import RedisQueueSensor

with DAG("waits", schedule=None):
    gate = RedisQueueSensor(
        task_id="gate", queue_name="{{ dag_run.conf['queue'] }}", min_ready=1, deferrable=True, poke_interval=0.02
    )

    @task
    def after(found: dict[str, Any]) -> int:
        return int(found["ready"])

    after(gate.output)
