"""Try dead letters again every night, at most 1,000 of them, and publish an alert about what was done.

Use it when handlers fail for a while, because a service is down or a row arrives late. What dies again is tried again
the next night, so bury what can never work with a reason of its own.

What happens on failure:
- Redis is away: the task is retried. A retry moves the dead letters that are left, and none twice.
- More wait than the limit: the rest is redriven the next night, and the alert says so.
- The alert cannot be published: the callback's log says why. The dead letters are redriven all the same.

It needs the connection `sluicegate_default`. The alert is a message in a queue, for a consumer that informs people;
Airflow's other notifiers, such as `SmtpNotifier`, take its place.
"""

from __future__ import annotations

from typing import Any

from airflow.sdk import DAG, task

from airflow_provider_sluicegate.notifications.redis_queue import RedisQueueNotifier
from airflow_provider_sluicegate.operators.administration import RedisQueueRedriveOperator

QUEUE = "example-to-redrive"
ALERTS = "example-alerts"
LIMIT = 1000

done = "{{ ti.xcom_pull(task_ids='redrive')['redriven'] }} of {{ ti.xcom_pull(task_ids='count')['redriven'] }}"
which: dict[str, Any] = {"queue_name": QUEUE, "reason": "handler_error", "older_than_seconds": 3600}

with DAG(
    "redrive_on_schedule",
    schedule="@daily",
    catchup=False,
    default_args={"retries": 2},
    on_failure_callback=RedisQueueNotifier(ALERTS),
    tags=["sluicegate"],
):
    count = RedisQueueRedriveOperator(task_id="count", dry_run=True, **which)

    @task.short_circuit
    def is_any(report: dict[str, Any]) -> bool:
        """Skip the redrive, and so the alert, when no dead letter is old enough."""
        return report["redriven"] > 0

    redrive = RedisQueueRedriveOperator(
        task_id="redrive",
        limit=LIMIT,
        on_success_callback=RedisQueueNotifier(ALERTS, message={"queue": QUEUE, "redriven": done}),
        **which,
    )
    is_any(count.output) >> redrive
