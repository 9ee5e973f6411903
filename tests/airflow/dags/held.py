"""Drain by a handler that holds its third batch until the test lets it go."""

from __future__ import annotations

import os

from airflow.sdk import DAG

from airflow_provider_sluicegate.operators.drain import RedisQueueDrainOperator

with DAG("held", schedule=None, default_args={"retries": 1, "retry_delay": 0}) as dag:
    RedisQueueDrainOperator(
        task_id="work",
        queue_name="{{ dag_run.conf['queue'] }}",
        process="tests.airflow.handlers:store_and_hold_third",
        workers=int(os.environ["SLUICEGATE_TEST_WORKERS"]),
        batch_size=100,
    )
