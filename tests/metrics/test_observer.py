"""What a process publishes, claims, holds and handles is counted and timed through its events."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
import redis
import redis.asyncio
from prometheus_client import CollectorRegistry

import sluicegate.asyncio
from sluicegate import RedisMessageQueue
from sluicegate.events import EventOperation, EventOutcome, QueueEvent
from sluicegate.jobs import RedisJobQueue
from sluicegate.metrics import MetricsObserver, instrument
from sluicegate.streams import RedisStreamQueue
from sluicegate.worker import Worker
from tests.support.servers import RedisServer

Value = Callable[..., float | None]


@pytest.fixture
def value(registry: CollectorRegistry) -> Value:
    """Return a function from a name without `sluicegate_client_`, and labels, to the value."""

    def read(name: str, **labels: str) -> float | None:
        every = {"queue": "", "stream": "", "group": "", **labels}
        return registry.get_sample_value(f"sluicegate_client_{name}", every)

    return read


def orders(**labels: str) -> dict[str, str]:
    return {"queue": "orders", **labels}


def test_a_message_from_publish_to_ack(client: redis.Redis, registry: CollectorRegistry, value: Value) -> None:
    queue = RedisMessageQueue("orders", client=client, on_event=MetricsObserver(registry))
    queue.publish_many("abc")
    queue.claim(2).ack()
    assert queue.claim(5).nack() is None
    assert value("messages_total", **orders(operation="publish", outcome="success")) == 3
    assert value("messages_total", **orders(operation="ack", outcome="success")) == 2
    assert value("messages_total", **orders(operation="nack", outcome="success")) == 1
    durations = "operation_duration_seconds"
    assert value(f"{durations}_count", **orders(operation="publish", outcome="success")) == 1
    assert value(f"{durations}_count", **orders(operation="claim", outcome="success")) == 2
    for verdict in ("ack", "nack"):
        assert value("hold_duration_seconds_count", **orders(outcome=verdict)) == 1


def test_a_hold_lasts_from_the_claim_to_the_verdict(registry: CollectorRegistry, value: Value) -> None:
    observer = MetricsObserver(registry)
    observer(QueueEvent(EventOperation.ACK, EventOutcome.SUCCESS, "orders", 7, duration_seconds=0.5, held_seconds=42.0))
    observer(QueueEvent(EventOperation.SETTLE, EventOutcome.LOST, "orders", 1, held_seconds=90.0))
    assert value("hold_duration_seconds_sum", **orders(outcome="ack")) == 42.0
    assert value("hold_duration_seconds_sum", **orders(outcome="lost")) == 90.0
    assert value("hold_duration_seconds_bucket", **orders(outcome="ack", le="60.0")) == 1
    assert value("hold_duration_seconds_bucket", **orders(outcome="ack", le="30.0")) == 0


def test_events_say_how_long_a_lease_was_held(client: redis.Redis, monkeypatch: pytest.MonkeyPatch) -> None:
    events: list[QueueEvent] = []
    queue = RedisMessageQueue("orders", client=client, on_event=events.append)
    queue.publish("a")
    lease = queue.claim()
    lease._batch._opened_at -= 30
    lease.extend()
    lease.ack()
    held = {event.operation.value: event.held_seconds for event in events}
    assert {name: seconds for name, seconds in held.items() if seconds is None} == {
        "publish": None, "claim": None, "extend": None,
    }  # fmt: skip
    assert 30 <= (held["ack"] or 0) < 60


def test_a_worker_s_handlers_are_told_apart(client: redis.Redis, registry: CollectorRegistry, value: Value) -> None:
    queue = RedisMessageQueue("orders", client=client, on_event=MetricsObserver(registry), max_delivery_count=1)
    worker = Worker(queue)

    @worker.handler("created")
    def created(payload: Any) -> None:
        pass

    @worker.handler("broken")
    def broken(payload: Any) -> None:
        raise ValueError("secret")

    queue.publish_many({"type": name} for name in ("created", "created", "broken", "random-1", "random-2"))
    worker.run_once(5)
    counts = {
        (handler, outcome): value("handle_duration_seconds_count", **orders(handler=handler, outcome=outcome))
        for handler, outcome in (("created", "success"), ("broken", "failure"), ("", "unhandled"))
    }
    assert counts == {("created", "success"): 2, ("broken", "failure"): 1, ("", "unhandled"): 2}


def test_types_beyond_the_bound_are_other(registry: CollectorRegistry, value: Value) -> None:
    observer = MetricsObserver(registry, max_handlers=2)
    for name in ("a", "b", "c", "d", "a"):
        observer(
            QueueEvent(EventOperation.HANDLE, EventOutcome.SUCCESS, "orders", message_type=name, duration_seconds=0.1)
        )
    counts = {
        name: value("handle_duration_seconds_count", **orders(handler=name, outcome="success"))
        for name in ("a", "b", "c", "other")
    }
    assert counts == {"a": 2, "b": 1, "c": None, "other": 2}


def test_retries_count(registry: CollectorRegistry, value: Value) -> None:
    MetricsObserver(registry)(
        QueueEvent(EventOperation.CLAIM, EventOutcome.RETRY, "orders", 0, attempt=1, error=OSError("secret"))
    )
    assert value("retries_total", **orders(operation="claim")) == 1
    assert value("messages_total", **orders(operation="claim", outcome="retry")) is None


def test_a_user_s_own_callback_still_gets_every_event(client: redis.Redis, registry: CollectorRegistry) -> None:
    mine: list[QueueEvent] = []
    queue = RedisMessageQueue("orders", client=client, on_event=MetricsObserver(registry, then=mine.append))
    queue.publish("a")
    assert [event.operation.value for event in mine] == ["publish"]


def test_a_queue_that_exists_is_instrumented_beside_its_own_callback(
    client: redis.Redis, registry: CollectorRegistry, value: Value
) -> None:
    mine: list[QueueEvent] = []
    queue = RedisMessageQueue("orders", client=client, on_event=mine.append)
    instrument(queue, MetricsObserver(registry))
    queue.publish("a")
    assert len(mine) == 1
    assert value("messages_total", **orders(operation="publish", outcome="success")) == 1


def test_one_observer_for_queues_jobs_streams_and_groups(
    client: redis.Redis, registry: CollectorRegistry, value: Value
) -> None:
    stream = RedisStreamQueue("events", client=client)
    group, jobs = stream.group("billing", start="beginning"), RedisJobQueue("mails", client=client)
    for each in (stream, group, jobs):
        instrument(each, MetricsObserver(registry))
    stream.publish("a")
    group.claim().ack()
    jobs.enqueue({"to": "a"}, kind="mail")
    (job,) = jobs.claim_jobs().jobs
    job.complete({"sent": True})
    done = {"operation": "ack", "outcome": "success"}
    assert value("messages_total", stream="events", operation="publish", outcome="success") == 1
    assert value("messages_total", stream="events", group="billing", **done) == 1
    assert value("messages_total", queue="mails", **done) == 1


def test_an_asyncio_queue_awaits_the_callback_behind_the_observer(
    client: redis.Redis, server: RedisServer, registry: CollectorRegistry, value: Value
) -> None:
    mine: list[str] = []

    async def note(event: QueueEvent) -> None:
        await asyncio.sleep(0)
        mine.append(event.operation.value)

    async def main() -> None:
        given = sluicegate.asyncio.RedisMessageQueue(
            "orders", url=server.url, on_event=MetricsObserver(registry, then=note)
        )
        async with given as queue:
            instrument(queue, MetricsObserver(registry))
            await queue.publish("a")

    asyncio.run(main())
    assert mine == ["publish"]
    assert value("messages_total", **orders(operation="publish", outcome="success")) == 2


def test_labels_carry_no_payload_id_or_error(client: redis.Redis, registry: CollectorRegistry) -> None:
    queue = RedisMessageQueue("orders", client=client, on_event=MetricsObserver(registry), max_delivery_count=1)
    queue.publish({"text": "secret"}, headers={"who": "secret"})
    lease = queue.claim(lease_id="secret-lease")
    lease.nack(error=ValueError("secret"))
    texts = {text for family in registry.collect() for one in family.samples for text in one.labels.values()}
    assert not {text for text in texts if "secret" in text or text == lease.messages[0].id}
