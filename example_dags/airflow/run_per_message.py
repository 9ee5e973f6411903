"""Start one DAG run per message, with a run id that is made of the message id.

Use it when each message is a job of its own, with tasks, retries and a page in Airflow: a report to render, a model to
train, a customer to set up. For thousands of small messages drain instead: a run costs Airflow far more than a message.

What happens on failure:
- The dispatcher is killed, or the ack is lost: the messages are delivered again. Their run ids are the same, so a run
  that exists is not started again; its task is skipped.
- Airflow cannot start a run: the mapped task is retried, and the runs of the other messages start.
- A run fails: the queue has forgotten its message. Clear the run, which still has the message in its conf.

It needs the connection `sluicegate_default`, and both DAGs unpaused. The payload is stored in Airflow's database as the
conf of the run.
"""

from __future__ import annotations

from typing import Any

from airflow.providers.standard.operators.trigger_dagrun import TriggerDagRunOperator
from airflow.sdk import DAG, get_current_context, task

from airflow_provider_sluicegate.operators.consume import RedisQueueConsumeOperator

QUEUE = "example-reports"


def as_run(message: dict[str, Any]) -> dict[str, Any]:
    """Return what differs between the runs."""
    return {"trigger_run_id": f"message-{message['id']}", "conf": message}


with DAG("run_per_message", schedule="@hourly", catchup=False, tags=["sluicegate"]):
    batch = RedisQueueConsumeOperator(task_id="batch", queue_name=QUEUE, max_messages=20, skip_if_empty=True, retries=2)
    TriggerDagRunOperator.partial(
        task_id="start",
        trigger_dag_id="render_report",
        logical_date=None,  # otherwise the time of the start, which two runs may share
        skip_when_already_exists=True,
        retries=2,
    ).expand_kwargs(batch.output.map(as_run))

with DAG("render_report", schedule=None, tags=["sluicegate"]):

    @task(retries=2)
    def render() -> str:
        """Return what this run has to do."""
        message = get_current_context()["dag_run"].conf
        return f"report {message['payload']['report']} of message {message['id']}"

    render()
