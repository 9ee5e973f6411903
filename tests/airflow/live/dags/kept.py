"""A lease that the triggerer keeps while a task works on its messages. Queue and folder are in the run's conf."""

from __future__ import annotations

from airflow.sdk import DAG, get_current_context, task

from airflow_provider_sluicegate.operators.lease import (
    RedisQueueClaimOperator,
    RedisQueueKeepLeaseOperator,
    RedisQueueSettleLeaseOperator,
)
from tests.support import handlers

with DAG("kept", schedule=None):
    claim = RedisQueueClaimOperator(task_id="claim", queue_name="{{ dag_run.conf['queue'] }}", lease_seconds=15)
    keep = RedisQueueKeepLeaseOperator(task_id="keep", lease=claim.output)

    @task
    def work() -> None:
        handlers.hold(get_current_context()["dag_run"].conf["folder"])

    settle = RedisQueueSettleLeaseOperator(task_id="settle", lease=claim.output)
    claim >> keep
    claim >> work() >> settle.as_teardown(setups=claim)
