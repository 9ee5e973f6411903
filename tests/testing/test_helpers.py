"""`assert_published` and `drain_inline`, on a real server."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable
from typing import Any

import pytest
from tenacity import wait_none

from sluicegate import RedisMessageQueue, testing
from sluicegate.asyncio.queue import RedisMessageQueue as AsyncQueue
from sluicegate.errors import CleanupFailedError, RetryBudgetExhaustedError
from sluicegate.testing import assert_published, drain_inline
from sluicegate.testing import asyncio as testing_asyncio
from tests.support.servers import RedisServer

MakeQueue = Callable[..., RedisMessageQueue]


def test_what_waits_is_found_and_stays(make_queue: MakeQueue) -> None:
    queue = make_queue(get_deduplication_key="id")
    queue.publish_many([{"id": 1, "tags": ["a"]}, {"id": 2, "tags": []}], headers={"source": "shop", "zone": "x"})
    assert len(assert_published(queue)) == 2
    (found,) = assert_published(queue, payload={"tags": ("a",), "id": 1}, count=1)
    assert found.json() == {"id": 1, "tags": ["a"]}
    assert [message.deduplication_key for message in assert_published(queue, key="2")] == ["2"]
    assert_published(queue, headers={"source": "shop"}, count=2)
    assert_published(queue, payload={"id": 3}, count=0)
    assert queue.depth().pending == 2


def test_texts_and_bytes_are_compared_as_they_are(queue: RedisMessageQueue) -> None:
    queue.publish("1")
    queue.publish(b"\xff")
    assert_published(queue, payload="1", count=1)
    assert_published(queue, payload=b"1", count=1)
    assert_published(queue, payload=b"\xff", count=1)
    assert_published(queue, payload={"id": 1}, count=0)
    assert_published(queue, key=None, count=2)


def test_what_came_back_is_found_before_what_is_new_and_the_delayed_last(make_queue: MakeQueue) -> None:
    queue = make_queue()
    queue.publish_many(["returned", "delayed", "new"])
    lease = queue.claim(2)
    lease.nack(lease.messages[1], delay_seconds=1000)
    lease.release()
    assert [message.text() for message in assert_published(queue)] == ["returned", "new", "delayed"]


def test_a_failure_shows_ids_and_where_the_nearest_differ(make_queue: MakeQueue) -> None:
    queue = make_queue(get_deduplication_key="id")
    ids = queue.publish_many(
        [{"id": 1, "lines": [{"sku": "tea", "count": 2}]}, {"id": 2}], headers={"source": "shop"}
    ).ids
    with pytest.raises(AssertionError) as caught:
        assert_published(
            queue, payload={"id": 1, "lines": [{"sku": "tea", "count": 3}]}, key="1", headers={"source": "web"}
        )
    first, *lines = str(caught.value).splitlines()
    assert first.startswith("queue 'orders': expected at least 1 with payload={'id': 1, ")
    assert first.endswith(" and key='1' and headers={'source': 'web'}, found 0 of 2 waiting")
    assert lines == [
        f'  ≠ {ids[0]} pending {{"id":1,"lines":[{{"sku":"tea","count":2}}]}}',
        "      its header 'source' is 'shop', payload.lines[0].count is 2, not 3",
        f'  ≠ {ids[1]} pending {{"id":2}}',
        "      its key is '2', its header 'source' is 'shop', payload.id is 2, not 1",
    ]


@pytest.mark.parametrize(
    ("expected", "reported"),
    [
        ({"a": 1}, "payload.b is not expected"),
        ({"a": 1, "b": [1, 2], "c": 1}, "payload.c is missing"),
        ({"a": 1, "b": [1]}, "payload.b has 2 items, not 1"),
        ({"a": True, "b": [1, 2]}, "payload.a is 1, not True"),
        ([], "payload is {'a': 1, 'b': [1, 2]}, not []"),
        ("text", "its payload differs"),
    ],
)
def test_where_payloads_differ(queue: RedisMessageQueue, expected: Any, reported: str) -> None:
    queue.publish({"a": 1, "b": [1, 2]})
    with pytest.raises(AssertionError) as caught:
        assert_published(queue, payload=expected)
    assert str(caught.value).endswith(f"      {reported}")


def test_a_failure_is_short_whatever_waits(queue: RedisMessageQueue) -> None:
    queue.publish_many(["x" * 5000] * 30)
    queue.claim(5)
    with pytest.raises(AssertionError) as caught:
        assert_published(queue, payload="y" * 5000, count=26)
    text = str(caught.value)
    assert "found 0 of 25 waiting" in text
    assert "  and 15 more" in text
    assert text.endswith("  5 in flight, which are not checked")
    assert "x" * 200 + "… (4800 more characters)" in text
    assert max(len(line) for line in text.splitlines()) < 350
    assert len(text.splitlines()) == 23


def test_too_many_are_told_too(queue: RedisMessageQueue) -> None:
    ids = queue.publish_many("ab").ids
    with pytest.raises(AssertionError) as caught:
        assert_published(queue, payload="a", count=0)
    assert str(caught.value).splitlines()[1] == f"  = {ids[0]} pending a"


def test_a_drain_handles_everything_in_the_thread_of_the_test(make_queue: MakeQueue) -> None:
    queue, seen = make_queue(), list[Any]()
    queue.publish_many("abc")
    counts = drain_inline(queue, seen.append)
    assert (counts.handled, counts.failed, counts.errors) == (3, 0, [])
    assert seen == [b"a", b"b", b"c"]
    assert queue.depth().ready == 0
    assert queue.depth().in_flight == 0


def test_a_drain_stops_at_its_limit(queue: RedisMessageQueue) -> None:
    queue.publish_many("abc")
    assert drain_inline(queue, lambda payload: None, limit=2).handled == 2
    assert queue.depth().ready == 1


def test_an_error_of_the_handler_comes_through_when_its_message_is_settled(make_queue: MakeQueue) -> None:
    queue = make_queue(on_error="bury")
    queue.publish_many("ab")
    with pytest.raises(ZeroDivisionError):
        drain_inline(queue, lambda payload: 1 / 0)
    assert (queue.depth().dead, queue.depth().ready) == (1, 1)


def test_errors_are_counted_where_that_is_asked_for(make_queue: MakeQueue) -> None:
    queue = make_queue(retry_backoff=wait_none(), max_delivery_count=3)
    queue.publish_many("ab")

    def handler(payload: bytes) -> None:
        if payload == b"a":
            raise ValueError(payload)

    counts = drain_inline(queue, handler, raise_errors=False)
    assert (counts.handled, counts.failed, counts.deliveries) == (1, 3, 4)
    assert [str(error) for error in counts.errors] == ["b'a'"] * 3
    assert queue.depth().dead == 1


def test_a_retry_that_is_to_come_later_is_not_waited_for(make_queue: MakeQueue) -> None:
    queue = make_queue()
    queue.publish("a")
    counts = drain_inline(queue, lambda payload: 1 / 0, raise_errors=False)
    assert (counts.handled, counts.failed) == (0, 1)
    assert queue.depth().delayed == 1


def test_an_error_of_redis_always_comes_through(make_queue: MakeQueue, own_server: RedisServer) -> None:
    queue = make_queue(url=own_server.url, retry_budget_seconds=0)
    queue.publish_many("ab")

    def handler(payload: bytes) -> None:
        own_server.stop()

    with pytest.raises(CleanupFailedError) as caught:
        drain_inline(queue, handler, raise_errors=False)
    assert isinstance(caught.value.__cause__, RetryBudgetExhaustedError)


def test_an_async_handler_is_refused_by_the_sync_drain(queue: RedisMessageQueue) -> None:
    queue.publish("a")

    async def handler(payload: bytes) -> None:
        raise AssertionError("never awaited")

    with pytest.raises(TypeError, match=r"sluicegate\.asyncio"):
        drain_inline(queue, handler, raise_errors=False)


def test_the_asyncio_functions_do_the_same(own_server: RedisServer) -> None:
    async def main() -> None:
        queue = AsyncQueue("orders", url=own_server.url, retry_backoff=wait_none(), max_delivery_count=2)
        await queue.publish_many(["a", "b"])
        with pytest.raises(AssertionError, match="found 1 of 2 waiting"):
            await testing_asyncio.assert_published(queue, payload="a", count=2)

        async def handler(payload: bytes) -> None:
            await asyncio.sleep(0)
            if payload == b"a":
                raise ValueError(payload)

        counts = await testing_asyncio.drain_inline(queue, handler, raise_errors=False)
        assert (counts.handled, counts.failed, len(counts.errors)) == (1, 2, 2)
        await queue.publish("c")
        with pytest.raises(ZeroDivisionError):
            await testing_asyncio.drain_inline(queue, lambda payload: 1 / 0)
        await queue.aclose()

    asyncio.run(main())


@pytest.mark.parametrize("name", testing_asyncio.__all__)
def test_both_sides_have_the_same_parameters(name: str) -> None:
    sync, other = (inspect.signature(getattr(side, name)) for side in (testing, testing_asyncio))
    assert [(each.name, each.kind, each.default) for each in sync.parameters.values()] == [
        (each.name, each.kind, each.default) for each in other.parameters.values()
    ]
