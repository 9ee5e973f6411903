"""A publish of more messages than its queue may hold. The queue is in the run's conf."""

from __future__ import annotations

from airflow.sdk import DAG

from airflow_provider_sluicegate.operators.publish import RedisQueuePublishOperator

with DAG("publishes_much", schedule=None):
    RedisQueuePublishOperator(
        task_id="publish",
        queue_name="{{ dag_run.conf['queue'] }}",
        messages=lambda: [{"id": number} for number in range(20)],
        deduplication_key="position",
        batch_size=4,
        queue_options={"max_pending_length": 8},
        deferrable=True,
    )
