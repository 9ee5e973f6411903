"""Drain with Spark by a handler that holds its third batch until the test lets it go."""

from __future__ import annotations

import os

from airflow.sdk import DAG

from airflow_provider_sluicegate.operators.spark import SparkRedisQueueDrainOperator

with DAG("spark_held", schedule=None, default_args={"retries": 1, "retry_delay": 0}) as dag:
    SparkRedisQueueDrainOperator(
        task_id="work",
        queue_name="{{ dag_run.conf['queue'] }}",
        process="tests.airflow.handlers:store_and_hold_third",
        partitions=2,
        batch_size=10,
        lease_seconds=600,
        # A Java process that runs already has the environment of its start.
        config_kwargs={"spark.executorEnv.SLUICEGATE_TEST_FOLDER": os.environ["SLUICEGATE_TEST_FOLDER"]},
    )
