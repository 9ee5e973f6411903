"""Redrive in two steps and purge what is left; the queue is in the run's conf."""

from __future__ import annotations

from airflow.sdk import DAG, chain, get_current_context, task

from airflow_provider_sluicegate.operators.administration import RedisQueuePurgeOperator, RedisQueueRedriveOperator

QUEUE = "{{ dag_run.conf['queue'] }}"

with DAG("administers", schedule=None) as dag:

    @task
    def choose() -> list[str]:
        ids: list[str] = get_current_context()["dag_run"].conf["ids"]
        return ids[:1]

    first = RedisQueueRedriveOperator(task_id="first", queue_name=QUEUE, reason="{{ dag_run.conf['reason'] }}", limit=2)
    second = RedisQueueRedriveOperator(
        task_id="second",
        queue_name=QUEUE,
        reason="{{ dag_run.conf['reason'] }}",
        limit=2,
        after="{{ ti.xcom_pull('first')['after'] }}",
    )
    third = RedisQueueRedriveOperator(
        task_id="third",
        queue_name=QUEUE,
        ids=choose(),
        after="{{ ti.xcom_pull('second')['after'] }}",
    )
    looked = RedisQueuePurgeOperator(task_id="looked", queue_name=QUEUE, state=["dead", "pending"], dry_run=True)
    purged = RedisQueuePurgeOperator(task_id="purged", queue_name=QUEUE, state="dead")
    chain(first, second, third, looked, purged)
