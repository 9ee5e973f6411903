"""One lease over several tasks. The queue, and what fails, are in the run's conf."""

from __future__ import annotations

from airflow.sdk import DAG, get_current_context, task

from airflow_provider_sluicegate.leases import attached_lease
from airflow_provider_sluicegate.operators.lease import RedisQueueClaimOperator, RedisQueueSettleLeaseOperator


def conf(key: str) -> object:
    return get_current_context()["dag_run"].conf.get(key)


with DAG("leases", schedule=None) as dag:
    claim = RedisQueueClaimOperator(
        task_id="claim", queue_name="{{ dag_run.conf['queue'] }}", max_messages=3, lease_seconds=600
    )

    @task
    def read(handle: dict[str, str]) -> list[int]:
        with attached_lease(handle) as lease:
            if conf("nacks"):
                lease.nack(lease.messages[0], delay_seconds=3600)
            return [message.json()["n"] for message in lease.messages]

    @task
    def work(number: int) -> int:
        if number == conf("fails"):
            raise RuntimeError("this one fails")
        return number

    @task
    def report(handle: dict[str, str]) -> int:
        with attached_lease(handle) as lease:
            if conf("breaks"):
                raise RuntimeError("broken inside the block")
            return max(message.delivery_count for message in lease.messages)

    settle = RedisQueueSettleLeaseOperator(task_id="settle", lease=claim.output)
    work.expand(number=read(claim.output)) >> settle.as_teardown(setups=claim)
    report(claim.output) >> settle
