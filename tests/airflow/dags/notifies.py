"""Notify of the end of tasks. The queue is in the run's conf."""

from __future__ import annotations

from datetime import timedelta

from airflow.sdk import DAG, task

from airflow_provider_sluicegate.notifications.redis_queue import RedisQueueNotifier, send_redis_queue_notification

QUEUE = "{{ dag_run.conf['queue'] }}"

with DAG(
    "notifies",
    schedule=None,
    default_args={"on_failure_callback": RedisQueueNotifier(QUEUE)},
) as dag:

    @task(
        on_success_callback=send_redis_queue_notification(QUEUE, {"task": "{{ ti.task_id }}", "of": ["{{ run_id }}"]})
    )
    def works() -> None: ...

    @task(retries=1, retry_delay=timedelta(), on_retry_callback=RedisQueueNotifier(QUEUE))
    def fails() -> None:
        raise RuntimeError("NIGHTINGALE")

    @task(on_success_callback=RedisQueueNotifier("unheard", redis_conn_id="no_such_connection"))
    def is_not_heard() -> None: ...

    works() >> is_not_heard() >> fails()
