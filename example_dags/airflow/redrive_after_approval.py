"""Ask a person before dead letters are tried again, and show them how many it would be.

Use it when a second delivery is expensive or can be seen outside: payments, mails, calls to a partner. A dry run
counts, the request waits under "Required Actions" in Airflow, and only an approval moves messages.

What happens on failure:
- The request is rejected: nothing is moved, and the redrive is skipped.
- Nobody answers: the run waits, and with it the next one. The approval takes a `response_timeout` and a default answer
  from `apache-airflow-providers-standard` 1.13 on.
- Redis is away: the task is retried. A retry moves the dead letters that are left, and none twice.
- Messages die while the request waits: they stay dead, because nobody has approved them. The next run asks for them.

It needs the connection `sluicegate_default`, and on Airflow below 3.3 a triggerer.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from airflow.providers.standard.operators.hitl import ApprovalOperator
from airflow.sdk import DAG, get_current_context, task

from airflow_provider_sluicegate.operators.administration import RedisQueueRedriveOperator

if TYPE_CHECKING:
    from sluicegate import DeadMessage

QUEUE = "example-payments"


def was_dead_before_the_run(dead: DeadMessage) -> bool:
    """Return whether the count has seen this dead letter, so that the redrive moves what was approved."""
    return dead.buried_at <= get_current_context()["dag_run"].run_after


which: dict[str, Any] = {"queue_name": QUEUE, "reason": "handler_error", "where": was_dead_before_the_run}

with DAG(
    "redrive_after_approval",
    schedule="@daily",
    catchup=False,
    max_active_runs=1,
    default_args={"retries": 2},
    tags=["sluicegate"],
):
    count = RedisQueueRedriveOperator(task_id="count", dry_run=True, **which)

    @task.short_circuit
    def is_any(report: dict[str, Any]) -> bool:
        """Ask nobody when there is nothing to redrive."""
        return report["redriven"] > 0

    approve = ApprovalOperator(
        task_id="approve",
        subject=f"Redrive dead letters of {QUEUE}?",
        body="{% set found = ti.xcom_pull(task_ids='count') %}"
        "{{ found['redriven'] }} dead letters would be delivered again, {{ found['blocked'] }} are blocked: "
        "another message holds their deduplication key.",
    )
    redrive = RedisQueueRedriveOperator(task_id="redrive", **which)
    is_any(count.output) >> approve >> redrive
