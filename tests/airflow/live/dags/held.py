"""Tasks that hold at one place, so that a test can kill them there; their retries continue.

The queue, the folder, the number of messages and, where there are several, the place are in the run's conf.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from airflow.sdk import DAG, get_current_context, task

from airflow_provider_sluicegate.leases import attached_lease
from airflow_provider_sluicegate.operators.consume import RedisQueueConsumeOperator
from airflow_provider_sluicegate.operators.drain import RedisQueueDrainOperator
from airflow_provider_sluicegate.operators.lease import RedisQueueClaimOperator, RedisQueueSettleLeaseOperator
from airflow_provider_sluicegate.operators.publish import RedisQueuePublishOperator
from sluicegate import DrainContext, Message
from tests.support import handlers

QUEUE = "{{ dag_run.conf['queue'] }}"
RETRIES = {"retries": 2, "retry_delay": 1}


def make(dag_run: Any) -> Iterator[dict[str, Any]]:
    """Hold in the middle of the third batch."""
    for message in handlers.messages(dag_run.conf["folder"], dag_run.conf["count"]):
        if message["n"] == 250:
            handlers.hold(dag_run.conf["folder"])
        yield message


def record_and_hold_third(batch: list[Message], ctx: DrainContext) -> None:
    handlers.record(batch)
    if ctx.chunk == 2:
        handlers.hold(batch[0].json()["folder"])


def hold_at(place: str) -> None:
    conf = get_current_context()["dag_run"].conf
    if conf["holds"] == place:
        handlers.hold(conf["folder"])


with DAG("publishes", schedule=None, default_args=RETRIES):
    RedisQueuePublishOperator(
        task_id="publish", queue_name=QUEUE, messages=make, deduplication_key="{n}", batch_size=100
    )

with DAG("drains", schedule=None, default_args=RETRIES):
    RedisQueueDrainOperator(task_id="drain", queue_name=QUEUE, process=record_and_hold_third, batch_size=10)

with DAG("consumes", schedule=None, default_args=RETRIES):

    @task
    def handle(messages: list[dict[str, Any]]) -> None:
        payloads = [message["payload"] for message in messages]
        handlers.record_numbers(payloads[0]["folder"], [payload["n"] for payload in payloads])

    batch = RedisQueueConsumeOperator(
        task_id="batch", queue_name=QUEUE, max_messages=20, post_execute=lambda context, result: hold_at("batch")
    )
    handle(batch.output)

with DAG("leases", schedule=None, default_args=RETRIES):

    @task
    def work(handle: dict[str, str]) -> None:
        with attached_lease(handle) as lease:
            handlers.record(lease.messages)
            hold_at("work")

    claim = RedisQueueClaimOperator(
        task_id="claim",
        queue_name=QUEUE,
        max_messages=20,
        lease_seconds=600,
        post_execute=lambda context, result: hold_at("claim"),
    )
    settle = RedisQueueSettleLeaseOperator(task_id="settle", lease=claim.output)
    claim >> work(claim.output) >> settle.as_teardown(setups=claim)
