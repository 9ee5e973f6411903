"""A lease that the triggerer keeps while a task works on its messages. The queue is in the run's conf."""

from __future__ import annotations

from airflow.sdk import DAG, task

from airflow_provider_sluicegate.leases import attached_lease
from airflow_provider_sluicegate.operators.lease import (
    RedisQueueClaimOperator,
    RedisQueueKeepLeaseOperator,
    RedisQueueSettleLeaseOperator,
)

with DAG("kept", schedule=None):
    claim = RedisQueueClaimOperator(task_id="claim", queue_name="{{ dag_run.conf['queue'] }}", lease_seconds=3)
    keep = RedisQueueKeepLeaseOperator(task_id="keep", lease=claim.output)

    @task
    def work(handle: dict[str, str]) -> int:
        with attached_lease(handle) as lease:
            return len(lease.messages)

    settle = RedisQueueSettleLeaseOperator(task_id="settle", lease=claim.output)
    claim >> keep
    work(claim.output) >> settle.as_teardown(setups=claim)
