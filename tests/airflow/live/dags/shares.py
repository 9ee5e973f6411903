"""Runs that share a queue: each of them drains a part. The queue and the folder are in the run's conf."""

from __future__ import annotations

from airflow.sdk import DAG

from airflow_provider_sluicegate.operators.drain import RedisQueueDrainOperator
from tests.support import handlers

with DAG("shares", schedule=None, max_active_runs=20):
    RedisQueueDrainOperator(
        task_id="drain",
        queue_name="{{ dag_run.conf['queue'] }}",
        process=handlers.record,
        batch_size=10,
        until=100,
    )
