"""Publish from a file, from another task and mapped; wait at the gate; drain. What it works on is in the run's conf."""

from __future__ import annotations

from typing import Any

from airflow.sdk import DAG, chain, get_current_context, task

from airflow_provider_sluicegate.hooks.redis_queue import RedisQueueHook
from airflow_provider_sluicegate.operators.publish import RedisQueuePublishOperator
from airflow_provider_sluicegate.sensors.redis_queue import RedisQueueSensor

QUEUE = "{{ dag_run.conf['queue'] }}"


@task
def make() -> list[dict[str, Any]]:
    return [{"tenant": "made", "order_id": number} for number in range(3)]


@task
def drain() -> list[str]:
    name = get_current_context()["dag_run"].conf["queue"]
    with RedisQueueHook("orders_redis") as hook, hook.get_queue(name).claim(limit=1000) as lease:
        return [f"{message.json()['tenant']}:{message.json()['order_id']}" for message in lease]


with DAG("gate", schedule=None, default_args={"redis_conn_id": "orders_redis"}) as dag:
    made = make()
    publish_file = RedisQueuePublishOperator(
        task_id="publish_file",
        queue_name=QUEUE,
        path="{{ dag_run.conf['path'] }}",
        deduplication_key="{tenant}:{order_id}",
        batch_size=10,
    )
    publish_made = RedisQueuePublishOperator(
        task_id="publish_made", queue_name=QUEUE, messages=made, deduplication_key=["tenant", "order_id"]
    )
    publish_each = RedisQueuePublishOperator.partial(
        task_id="publish_each", messages=made, deduplication_key=lambda order: str(order["order_id"])
    ).expand(queue_name=[QUEUE + "-0", QUEUE + "-1"])
    gate = RedisQueueSensor(
        task_id="gate",
        queue_name=QUEUE,
        min_ready="{{ ti.xcom_pull('publish_file')['published'] + 3 }}",
        poke_interval=0.01,
        timeout=60,
    )
    chain([publish_file, publish_made, publish_each], gate, drain())
