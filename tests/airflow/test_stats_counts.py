"""What tasks did to messages as counters of Airflow: real StatsD packets, sent by Airflow's own logger."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any

import pytest

from airflow_provider_sluicegate import compat
from airflow_provider_sluicegate.operators.consume import RedisQueueConsumeOperator
from airflow_provider_sluicegate.operators.drain import RedisQueueDrainOperator
from airflow_provider_sluicegate.operators.jobs import RedisJobEnqueueOperator
from airflow_provider_sluicegate.operators.lease import RedisQueueClaimOperator, RedisQueueSettleLeaseOperator
from airflow_provider_sluicegate.operators.publish import RedisQueuePublishOperator
from airflow_provider_sluicegate.stats import emit_counts
from sluicegate import RedisMessageQueue
from sluicegate.errors import DrainFailedError
from sluicegate.place import Place
from tests.airflow.instance import Instance
from tests.airflow.metrics import Client, Server, sending

pytestmark = pytest.mark.airflow


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    """Yield a socket for what this process sends by Airflow's metrics, under the names with tags only."""
    monkeypatch.setattr(compat, "has_legacy_metric_names", lambda: False)
    server = Server()
    with sending(compat.stats(), Client(server.port)):
        yield server
    server.close()


def read(server: Server) -> dict[str, float]:
    """Return what was sent by now, without the common beginning of the names."""
    found: dict[str, float] = {}
    while True:
        try:
            server._socket.settimeout(0.2)
            found |= server.read(1)
        except TimeoutError:
            return {name.removeprefix("airflow.sluicegate."): value for name, value in found.items()}


def execute(operator: Any, **attributes: Any) -> Any:
    instance = Instance()
    vars(instance).update(attributes)
    return operator.execute({"ti": instance})


def test_a_publish_counts_messages_and_duplicates(queue: RedisMessageQueue, server: Server) -> None:
    operator = RedisQueuePublishOperator(
        task_id="publish", queue_name=queue.name, messages=[{"id": 1}, {"id": 2}, {"id": 1}], deduplication_key="id"
    )
    execute(operator)
    assert read(server) == {"queue.published": 2, "queue.duplicates": 1}


def test_enqueued_jobs_count_as_published(queue: RedisMessageQueue, server: Server) -> None:
    execute(RedisJobEnqueueOperator(task_id="enqueue", queue_name=queue.name, payloads=[{"kind": "a"}] * 3))
    assert read(server) == {"queue.published": 3}


def test_a_drain_counts_what_became_of_its_messages_and_its_time(queue: RedisMessageQueue, server: Server) -> None:
    queue.publish_many([{"id": number} for number in range(5)])
    execute(RedisQueueDrainOperator(task_id="drain", queue_name=queue.name, process=lambda batch: None))
    found = read(server)
    assert found.pop("queue.drain_duration") > 0
    assert found == {"queue.claimed": 5, "queue.acked": 5}


@pytest.mark.parametrize("max_tries", [0, 1])
def test_a_failed_drain_is_counted_once_no_retry_follows(
    queue: RedisMessageQueue, server: Server, max_tries: int
) -> None:
    def fail(batch: Any) -> None:
        raise ValueError("CANARY")

    queue.publish_many([{"id": number} for number in range(2)])
    with pytest.raises(DrainFailedError):
        execute(
            RedisQueueDrainOperator(task_id="drain", queue_name=queue.name, process=fail),
            try_number=1,
            max_tries=max_tries,
        )
    assert ("queue.failed" in read(server)) is (max_tries == 0)


def test_a_batch_that_is_handed_on_is_claimed_and_then_acked(queue: RedisMessageQueue, server: Server) -> None:
    queue.publish_many([{"id": 1}, {"text": "x" * 9000}])
    operator = RedisQueueConsumeOperator(task_id="consume", queue_name=queue.name, max_xcom_bytes=1000)
    execute(operator)
    assert read(server) == {"queue.claimed": 2, "queue.buried": 1}
    for callback in operator.on_success_callback:
        callback({})
    assert read(server)["queue.acked"] >= 1


def test_a_lease_is_claimed_by_one_task_and_settled_by_another(queue: RedisMessageQueue, server: Server) -> None:
    queue.publish_many([{"id": 1}, {"id": 2}])
    lease = execute(RedisQueueClaimOperator(task_id="claim", queue_name=queue.name))
    assert read(server) == {"queue.claimed": 2}
    settle = RedisQueueSettleLeaseOperator(task_id="settle", lease=lease, work_task_ids=["work"])
    execute(settle)
    assert read(server) == {"queue.acked": 2}
    execute(settle)  # the task is cleared: it finds the lease settled
    assert read(server) == {}


def test_counts_of_a_group_have_the_names_of_its_stream(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compat, "has_legacy_metric_names", lambda: True)
    emit_counts(Place("orders", stream=True, group="billing"), {"acked": 3, "buried": 0})
    assert read(server) == {"group.acked": 3, "group.acked.orders.billing": 3}


def test_counts_that_cannot_be_sent_are_logged_and_raise_nothing(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unreachable() -> Any:
        raise OSError("network is unreachable")

    monkeypatch.setattr(compat, "stats", unreachable)
    with caplog.at_level(logging.WARNING):
        emit_counts("orders", {"acked": 1})
    assert caplog.records[-1].getMessage() == (
        "queue 'orders': its counts could not be reported to Airflow's metrics: network is unreachable"
    )
