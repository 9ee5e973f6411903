"""Sensors that wait in the triggerer, and assets that watch queues. Queues and folders are in the run's conf."""

from __future__ import annotations

from typing import Any

from airflow.sdk import DAG, Asset, AssetWatcher, get_current_context, task

from airflow_provider_sluicegate.leases import attached_lease
from airflow_provider_sluicegate.operators.drain import RedisQueueDrainOperator
from airflow_provider_sluicegate.operators.lease import RedisQueueSettleLeaseOperator
from airflow_provider_sluicegate.sensors.redis_queue import RedisQueueSensor
from airflow_provider_sluicegate.triggers.delivery import RedisQueueDeliveryTrigger
from airflow_provider_sluicegate.triggers.event import RedisQueueEventTrigger
from tests.support import handlers

QUEUE = "{{ dag_run.conf['queue'] }}"
WATCHED = "live-watched"
DELIVERED = "live-delivered"

with DAG("defers", schedule=None):
    gate = RedisQueueSensor(task_id="gate", queue_name=QUEUE, min_ready=5, deferrable=True, poke_interval=1)
    gate >> RedisQueueDrainOperator(task_id="drain", queue_name=QUEUE, process=handlers.record)

with DAG("starts", schedule=None):
    RedisQueueSensor(task_id="gate", queue_name=QUEUE, min_ready=5, start_from_trigger=True, poke_interval=1)

with DAG("defers_many", schedule=None):

    @task
    def names() -> list[str]:
        return list(get_current_context()["dag_run"].conf["queues"])

    RedisQueueSensor.partial(task_id="gate", min_ready=1, deferrable=True, poke_interval=1).expand(queue_name=names())

with DAG("claims", schedule=None):
    claim = RedisQueueSensor(
        task_id="gate", queue_name=QUEUE, min_ready=10, deferrable=True, poke_interval=1, claim=True, max_messages=10
    )

    @task
    def work(handle: dict[str, str]) -> None:
        with attached_lease(handle) as lease:
            handlers.record(lease.messages)

    settle = RedisQueueSettleLeaseOperator(task_id="settle", lease=claim.output)
    work(claim.output) >> settle.as_teardown(setups=claim.as_setup())


def watched(name: str, trigger: Any) -> Asset:
    return Asset(name, watchers=[AssetWatcher(name=name, trigger=trigger)])


WAKES = RedisQueueEventTrigger(queue_name=WATCHED, poll_interval_seconds=1)
DELIVERS = RedisQueueDeliveryTrigger(queue_name=DELIVERED)

with DAG("watches", schedule=[watched("live-woken", WAKES)], is_paused_upon_creation=True):
    RedisQueueDrainOperator(task_id="drain", queue_name=WATCHED, process=handlers.record)

with DAG("receives", schedule=[watched("live-events", DELIVERS)], is_paused_upon_creation=True):

    @task
    def count() -> int:
        events = get_current_context()["triggering_asset_events"]
        return sum(len(event.extra["payload"]["messages"]) for each in events.values() for event in each)

    count()
