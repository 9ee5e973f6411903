"""The trigger that carries messages in asset events, driven by Airflow's own manager of shared streams."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from airflow.triggers.base import BaseEventTrigger
from airflow.triggers.shared_stream import AdvanceItem, AdvanceOutcome, SharedStreamManager

from airflow_provider_sluicegate.triggers import delivery
from airflow_provider_sluicegate.triggers.delivery import RedisQueueDeliveryTrigger
from sluicegate import RedisMessageQueue
from sluicegate.errors import ConfigurationError
from tests.airflow.conftest import PASSWORD, Connect
from tests.airflow.servers import PasswordServer
from tests.airflow.test_triggers import run

pytestmark = pytest.mark.airflow


class Watching:
    """One trigger of an asset in a triggerer: its events, and the triggerer's word that one is stored."""

    def __init__(self, manager: SharedStreamManager, trigger: RedisQueueDeliveryTrigger, number: int) -> None:
        self._manager = manager
        self._key = trigger.shared_stream_key()
        self._number = number
        stream = manager.subscribe(trigger_id=number, trigger=trigger, key=self._key)
        self._events = trigger.filter_shared_stream(stream)

    async def next(self) -> tuple[dict[str, Any], int]:
        """Return the next event's payload, and the number by which the triggerer confirms it."""
        event = await anext(self._events)  # type: ignore[call-overload]  # an async generator
        sequence = self._manager.bind_pending_event(trigger_id=self._number, key=self._key)
        assert sequence is not None
        return json.loads(json.dumps(event.payload)), sequence

    async def leave(self) -> None:
        await self._events.aclose()  # type: ignore[attr-defined]  # an async generator
        await self._manager.unsubscribe(self._number, self._key)


@asynccontextmanager
async def triggerer(**options: Any) -> AsyncIterator[SharedStreamManager]:
    """Yield the part of a triggerer that shares streams; its end is that of the process in good order."""
    manager = SharedStreamManager(**options)
    try:
        yield manager
    finally:
        await manager.stop_all()


async def until(condition: Any) -> None:
    """Wait until something holds in Redis; `run` sets the deadline."""
    while not await asyncio.to_thread(condition):
        await asyncio.sleep(0.005)


def payloads(event: dict[str, Any]) -> list[Any]:
    return [message["payload"] for message in event["messages"]]


def test_a_message_is_acked_after_its_event_is_stored_and_not_before(queue: RedisMessageQueue) -> None:
    queue.publish_many([{"n": 1}, {"n": 2}])

    async def work() -> None:
        async with triggerer() as manager:
            watching = Watching(manager, RedisQueueDeliveryTrigger(queue_name=queue.name), 1)
            first, stored_first = await watching.next()
            second, stored_second = await watching.next()  # the first is passed, and not yet stored
            assert [payloads(first), payloads(second)] == [[{"n": 1}], [{"n": 2}]]
            assert set(first["messages"][0]) == {
                "id", "payload", "encoding", "headers", "delivery_count", "enqueued_at",
            }  # fmt: skip
            assert (queue.stats().acked, queue.depth().in_flight) == (0, 2)
            manager.confirm_persisted([stored_first])
            await until(lambda: queue.stats().acked == 1)
            third = asyncio.create_task(watching.next())  # passes the second
            manager.confirm_persisted([stored_second])
            await until(lambda: queue.stats().acked == 2)
            third.cancel()
            await asyncio.gather(third, return_exceptions=True)
            await watching.leave()

    run(work)
    assert (queue.depth().in_flight, queue.depth().ready) == (0, 0)


def test_an_event_that_is_never_stored_is_delivered_again(queue: RedisMessageQueue) -> None:
    queue.publish({"n": 1})

    async def work() -> tuple[dict[str, Any], dict[str, Any]]:
        async with triggerer() as manager:
            watching = Watching(manager, RedisQueueDeliveryTrigger(queue_name=queue.name), 1)
            lost, _ = await watching.next()
        async with triggerer() as manager:  # the next process
            watching = Watching(manager, RedisQueueDeliveryTrigger(queue_name=queue.name), 1)
            again, _ = await watching.next()
        return lost, again

    lost, again = run(work)
    assert lost["messages"][0]["id"] == again["messages"][0]["id"]


def test_an_event_that_is_not_stored_in_time_is_nacked_with_the_reason(queue: RedisMessageQueue) -> None:
    queue.publish("a")

    async def work() -> None:
        async with triggerer(ack_timeout=0.05) as manager:
            watching = Watching(manager, RedisQueueDeliveryTrigger(queue_name=queue.name), 1)
            await watching.next()
            await until(lambda: queue.depth().delayed == 1)

    run(work)
    assert queue.stats().nacked == 1
    assert 20 < (queue.depth().next_due_seconds or 0) <= 30, "not at once, which would use the deliveries up"


def test_a_stream_that_nobody_watches_claims_no_more(queue: RedisMessageQueue) -> None:
    queue.publish("a")

    async def work() -> None:
        producer = RedisQueueDeliveryTrigger.create_shared_stream_producer(
            RedisQueueDeliveryTrigger(queue_name=queue.name).serialize()[1]
        )
        stream = producer.open_stream()
        _, lease = await anext(stream)  # type: ignore[call-overload]  # an async generator
        await producer.advance([AdvanceItem(lease, AdvanceOutcome(acked=0, failed=0, rejected=0))])
        assert queue.depth().ready == 1
        more = asyncio.create_task(anext(stream))  # type: ignore[call-overload]
        await asyncio.sleep(0.2)
        assert queue.stats().claimed == 1
        more.cancel()
        await asyncio.gather(more, return_exceptions=True)
        await producer.aclose()

    run(work)


def test_a_lease_outlives_a_slow_database(queue: RedisMessageQueue) -> None:
    queue.publish("a")

    async def work() -> None:
        async with triggerer() as manager:
            trigger = RedisQueueDeliveryTrigger(queue_name=queue.name, lease_seconds=0.6)
            watching = Watching(manager, trigger, 1)
            _, stored = await watching.next()
            began = time.monotonic()
            await until(lambda: time.monotonic() - began > 2)  # three lives of the lease
            last = asyncio.create_task(watching.next())
            manager.confirm_persisted([stored])
            await until(lambda: queue.stats().acked == 1)
            last.cancel()
            await asyncio.gather(last, return_exceptions=True)

    run(work)
    assert queue.stats().reaped == 0


def test_equal_triggers_share_one_consumer_and_each_gets_every_message(queue: RedisMessageQueue) -> None:
    async def work() -> None:
        async with triggerer() as manager:
            both = [Watching(manager, RedisQueueDeliveryTrigger(queue_name=queue.name), number) for number in (1, 2)]
            queue.publish("a")
            (one, stored_one), (two, stored_two) = [await each.next() for each in both]
            assert one == two
            lasts = [asyncio.create_task(each.next()) for each in both]
            manager.confirm_persisted([stored_one])
            await asyncio.sleep(0)
            assert queue.stats().acked == 0
            manager.confirm_persisted([stored_two])
            await until(lambda: queue.stats().acked == 1)
            for last in lasts:
                last.cancel()
            await asyncio.gather(*lasts, return_exceptions=True)

    run(work)


def test_no_more_is_claimed_than_may_be_outstanding(queue: RedisMessageQueue) -> None:
    queue.publish_many("abcdefgh")

    async def work() -> None:
        async with triggerer() as manager:
            trigger = RedisQueueDeliveryTrigger(queue_name=queue.name, max_messages=2, max_outstanding=2)
            watching = Watching(manager, trigger, 1)
            found = [await watching.next() for _ in range(2)]
            assert [payloads(event) for event, _ in found] == [["a", "b"], ["c", "d"]]
            third = asyncio.create_task(watching.next())
            await until(lambda: queue.depth().in_flight == 4)
            assert not third.done()
            manager.confirm_persisted([found[0][1]])
            event, _ = await third
            assert payloads(event) == ["e", "f"]

    run(work)


def test_a_message_too_large_for_an_event_becomes_a_dead_letter(queue: RedisMessageQueue) -> None:
    queue.publish_many(["x" * 5000, "a"])

    async def work() -> dict[str, Any]:
        async with triggerer() as manager:
            trigger = RedisQueueDeliveryTrigger(queue_name=queue.name, max_event_bytes=1000)
            return (await Watching(manager, trigger, 1).next())[0]

    assert payloads(run(work)) == ["a"]
    (dead,) = queue.peek(state="dead")
    assert dead.reason == "too_large_for_event"


def test_an_outage_ends_no_stream(connect: Connect, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delivery, "_MAX_PAUSE_SECONDS", 0.02)
    server = PasswordServer(PASSWORD)
    connect(host="127.0.0.1", port=server.port, password=PASSWORD)

    async def work() -> dict[str, Any]:
        async with triggerer() as manager:
            watching = Watching(manager, RedisQueueDeliveryTrigger(queue_name="orders"), 1)
            first = asyncio.create_task(watching.next())
            await asyncio.sleep(0.2)  # several attempts without a server
            assert not first.done()
            server.start()
            with server.client() as client:
                RedisMessageQueue("orders", client=client).publish("a")
            return (await first)[0]

    try:
        assert payloads(run(work)) == ["a"]
    finally:
        server.remove()


def test_it_is_rebuilt_from_plain_values_with_the_same_identity() -> None:
    trigger = RedisQueueDeliveryTrigger(queue_name="orders", max_messages=5)

    path, arguments = trigger.serialize()
    rebuilt = RedisQueueDeliveryTrigger(**json.loads(json.dumps(arguments)))

    assert rebuilt.shared_stream_key() == trigger.shared_stream_key()
    assert hash(trigger.shared_stream_key()) == hash(rebuilt.shared_stream_key())
    assert BaseEventTrigger.hash(*rebuilt.serialize()) == BaseEventTrigger.hash(path, arguments)
    other = RedisQueueDeliveryTrigger(queue_name="orders", max_messages=6)
    assert other.shared_stream_key() != trigger.shared_stream_key()
    groups = [RedisQueueDeliveryTrigger(stream=one, group=two) for one, two in ("ob", "bo")]
    assert groups[0].shared_stream_key() != groups[1].shared_stream_key()


@pytest.mark.parametrize("arguments", [{"max_messages": 0}, {"max_outstanding": 5000}, {"lease_seconds": 0}])
def test_what_cannot_work_is_refused_when_the_dag_is_read(arguments: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError, match=next(iter(arguments))):
        RedisQueueDeliveryTrigger(queue_name="orders", **arguments)
