"""One DAG publishes and updates an asset; the other one is scheduled on it and drains."""

from __future__ import annotations

from typing import Any

from airflow.sdk import DAG, Asset

from airflow_provider_sluicegate.operators.drain import RedisQueueDrainOperator
from airflow_provider_sluicegate.operators.publish import RedisQueuePublishOperator
from tests.support import handlers

QUEUE = "live-assets"
ORDERS = Asset("live-orders")


def make(dag_run: Any) -> list[dict[str, Any]]:
    conf = dag_run.conf
    return handlers.messages(conf["folder"], conf["count"], conf["start"])


with DAG("asset_publishes", schedule=None):
    RedisQueuePublishOperator(task_id="publish", queue_name=QUEUE, messages=make, outlets=[ORDERS])

with DAG("asset_drains", schedule=[ORDERS]):
    RedisQueueDrainOperator(task_id="drain", queue_name=QUEUE, process=handlers.record)
