"""Drain with a driver that spark-submit starts; the queue is in the run's conf."""

from __future__ import annotations

from datetime import timedelta

from airflow.sdk import DAG
from tenacity import wait_fixed

from airflow_provider_sluicegate.operators.spark_submit import SparkSubmitRedisQueueDrainOperator

with DAG(
    "spark_submits",
    schedule=None,
    default_args={"redis_conn_id": "orders_redis", "retries": 1, "retry_delay": timedelta(seconds=3)},
) as dag:
    SparkSubmitRedisQueueDrainOperator(
        task_id="work",
        queue_name="{{ dag_run.conf['queue'] }}",
        process="tests.airflow.handlers:store",
        partitions=2,
        batch_size=10,
        lease_seconds=3,  # a run that meets its own failed message puts it off for as long
        queue_options={"retry_backoff": wait_fixed(0.01)},
    )
