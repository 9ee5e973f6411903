"""Hand a batch to mapped tasks; what each of them got is in their XComs. The queue is in the run's conf."""

from __future__ import annotations

from typing import Any

from airflow.sdk import DAG, get_current_context, task

from airflow_provider_sluicegate.hooks.redis_queue import RedisQueueHook
from airflow_provider_sluicegate.operators.consume import RedisQueueConsumeOperator


def look(context: Any, result: Any) -> None:
    """Keep how many messages were in flight and acked before Airflow stored the batch; fail the first try if asked."""
    conf = context["dag_run"].conf
    with RedisQueueHook() as hook:
        queue = hook.get_queue(conf["queue"])
        seen = {"in_flight": queue.depth().in_flight, "acked": queue.stats().acked}
    context["ti"].xcom_push(key="before", value=seen)
    if conf["fails"] and context["ti"].try_number == 1:
        raise RuntimeError("the database is away")


with DAG("consumes", schedule=None) as dag:
    batch = RedisQueueConsumeOperator(
        task_id="batch",
        queue_name="{{ dag_run.conf['queue'] }}",
        max_messages=3,
        retries=1,
        retry_delay=0,
        post_execute=look,
    )

    @task
    def work(message: dict[str, Any]) -> Any:
        return message["payload"]

    @task
    def before() -> Any:
        return get_current_context()["ti"].xcom_pull(task_ids="batch", key="before")

    work.expand(message=batch.output) >> before()
