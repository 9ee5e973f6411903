"""A publish of many messages keeps one connection for all of its calls, and loses nothing by it."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import redis
import redis.asyncio

from sluicegate import RedisMessageQueue, gateway
from sluicegate._redis import connection_io, pools
from sluicegate._redis.asyncio import connection_io as async_connection_io
from sluicegate._redis.asyncio import pools as async_pools
from sluicegate.asyncio import gateway as async_gateway
from sluicegate.core import packing
from sluicegate.core.transitions import publish as publish_transition
from sluicegate.events import QueueEvent
from tests.support.flavours import MakeStream
from tests.support.servers import RedisServer

MakeQueue = Callable[..., RedisMessageQueue]


@pytest.fixture
def borrowed(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Lists how often a connection was taken from a pool."""
    taken: list[str] = []

    def borrow(pool: Any) -> Any:
        taken.append("borrow")
        return pools.borrow(pool)

    async def async_borrow(pool: Any) -> Any:
        taken.append("borrow")
        return await async_pools.borrow(pool)

    monkeypatch.setattr(connection_io, "borrow", borrow)
    monkeypatch.setattr(async_connection_io, "borrow", async_borrow)
    return taken


def numbers(count: int) -> list[dict[str, int]]:
    return [{"id": number} for number in range(count)]


def test_all_calls_of_one_publish_share_a_connection(make_queue: MakeQueue, borrowed: list[str]) -> None:
    queue = make_queue(get_deduplication_key="id")
    queue.publish({"id": -1})
    borrowed.clear()
    assert queue.publish_many(numbers(4500)).accepted == 4500
    assert len(borrowed) == 1


def test_the_next_call_is_prepared_while_redis_works_on_one(
    make_queue: MakeQueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its blocks and the places of its markers are ready before the reply to the call before is awaited."""
    queue, done = make_queue(get_deduplication_key="id"), list[str]()
    queue.publish({"id": -1})

    def packed_parts(*arguments: Any) -> list[bytes]:
        done.append("prepared")
        return packing.packed_parts(*arguments)

    def read(connection: Any) -> Any:
        done.append("awaited")
        return pools.read(connection)

    async def async_read(connection: Any) -> Any:
        done.append("awaited")
        return await async_pools.read(connection)

    monkeypatch.setattr(publish_transition, "packed_parts", packed_parts)
    monkeypatch.setattr(gateway, "read", read)
    monkeypatch.setattr(async_gateway, "read", async_read)
    assert queue.publish_many(numbers(3000)).accepted == 3000
    assert done == ["prepared", "prepared", "awaited", "prepared", "awaited", "awaited"]


@pytest.mark.parametrize("whole", [True, False])
def test_a_call_that_is_sent_ahead_is_written_to_the_last_byte(server: RedisServer, whole: bool) -> None:
    """The event loop has no time to write the rest while the next call is prepared; this task awaits nothing."""

    async def left() -> int:
        client = redis.asyncio.Redis.from_url(server.url)
        connection: Any = await async_pools.borrow(client.connection_pool)
        connection._writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
        packed = connection.pack_command("ECHO", "x" * 60_000)
        await (async_pools.send_whole if whole else async_pools.send)(connection, packed)
        unsent: int = connection._writer.transport.get_write_buffer_size()
        assert len(await async_pools.read(connection)) == 60_000
        await async_pools.give_back(client.connection_pool, connection, intact=True)
        await client.aclose()
        return unsent

    assert (asyncio.run(left()) == 0) is whole


def test_a_stream_holds_one_too(make_stream: MakeStream, borrowed: list[str]) -> None:
    stream = make_stream()
    stream.publish({"id": -1})
    borrowed.clear()
    assert stream.publish_many(numbers(2500)).accepted == 2500
    assert len(borrowed) == 1


def test_a_connection_that_was_idle_goes_back_before_the_next_call(
    make_queue: MakeQueue, borrowed: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (connection_io, async_connection_io):
        monkeypatch.setattr(module, "_HELD_SECONDS", 0)
    queue = make_queue()
    queue.publish({"id": -1})
    borrowed.clear()
    assert queue.publish_many(numbers(4500)).accepted == 4500
    assert len(borrowed) == 5


def test_a_report_of_each_call_lets_others_have_the_connection(queue: RedisMessageQueue, borrowed: list[str]) -> None:
    queue.publish({"id": -1})
    borrowed.clear()
    reports = [*queue.publish_chunks(numbers(300), batch_size=100, ahead=True)]
    assert [report.accepted for report in reports] == [100, 100, 100]
    assert borrowed == []  # each call takes one by itself


def test_a_server_that_closes_the_connection_costs_no_message(make_queue: MakeQueue, client: redis.Redis) -> None:
    seen: list[QueueEvent] = []
    queue = make_queue(get_deduplication_key="id", on_event=seen.append)
    queue.publish({"id": -1})

    def killing() -> Iterator[dict[str, int]]:
        for message in numbers(4500):
            if message["id"] % 1000 == 500:
                client.client_kill_filter(_type="normal", skipme=True)
            yield message

    report = queue.publish_many(killing())
    assert (report.accepted, report.duplicates) == (4500, 0)
    assert queue.depth().pending == 4501


def test_whatever_ends_a_publish_returns_its_connection(make_queue: MakeQueue, borrowed: list[str]) -> None:
    queue = make_queue()
    queue.publish({"id": -1})

    def failing() -> Iterator[dict[str, Any]]:
        yield from numbers(2500)
        raise RuntimeError("the input ended")

    for unfit in (failing(), [*numbers(2500), {"id": float("nan")}]):
        with pytest.raises((RuntimeError, ValueError)):
            queue.publish_many(unfit)
    pool = queue.session.runner.gateway.client.connection_pool  # type: ignore[attr-defined]
    assert not pool._in_use_connections


def loop_pool(queue: RedisMessageQueue) -> Any:
    """Return the pool of the connections that loops keep."""
    made: Any = queue.session.runner.gateway._pools._made  # type: ignore[attr-defined]
    by_stage = made if "loops" in made else next(iter(made.values()))
    return by_stage["loops"]


def test_a_loop_keeps_a_connection_of_its_own(make_queue: MakeQueue, borrowed: list[str]) -> None:
    """Its handler has those of the client, however few these are."""
    queue = make_queue()
    queue.publish("the server learns the scripts")
    assert [queue.depth().in_flight for _ in queue.consume(wait_seconds=0)] == [1]
    queue.publish_many("abcdef")
    borrowed.clear()
    with queue.consume(wait_seconds=0) as messages:
        seen = [(message.text(), queue.depth().in_flight) for message in messages]
    assert seen == [(letter, 1) for letter in "abcdef"]
    assert borrowed.count("borrow") == 1 + 6 + 1, "of the loop, of each handler, and of the claim that found nothing"
    assert not loop_pool(queue)._in_use_connections


@pytest.mark.parametrize("ends", ["break", "limit", "error"])
def test_a_loop_that_ends_returns_its_connection(make_queue: MakeQueue, client: redis.Redis, ends: str) -> None:
    queue = make_queue()
    queue.publish_many(numbers(40))
    for turn in range(20):
        try:
            for _ in queue.consume(1 if ends == "limit" else None, wait_seconds=0):
                if ends == "error":
                    raise ArithmeticError("of a handler")
                if ends == "break":
                    break
        except ArithmeticError:
            pass
        if turn == 2:
            open_after_three = len(client.client_list())
    assert len(client.client_list()) <= open_after_three  # those of tests before this one may still be closing
    assert not loop_pool(queue)._in_use_connections


def test_a_server_that_closes_the_connection_of_a_loop_costs_nothing(
    make_queue: MakeQueue, client: redis.Redis
) -> None:
    queue = make_queue()
    queue.publish_many("abcdef")
    seen = []
    for message in queue.consume(wait_seconds=0):
        seen.append(message.text())
        client.client_kill_filter(_type="normal", skipme=True)
    assert seen == [*"abcdef"]
    assert queue.stats().acked == 6
    assert queue.depth().in_flight == 0


def test_a_client_with_one_connection_has_it_for_the_handlers_of_a_loop(
    server: RedisServer, client: redis.Redis
) -> None:
    with RedisMessageQueue("orders", url=f"{server.url}?max_connections=1") as queue:
        queue.publish_many("abc")
        assert [queue.depth().in_flight for _ in queue.consume(wait_seconds=0)] == [1, 1, 1]


class Pool:
    """A pool that counts what it gives and gets back."""

    def __init__(self) -> None:
        self.given: list[object] = []
        self.returned: list[object] = []

    def get_connection(self, *_: object) -> object:
        self.given.append(object())
        return self.given[-1]

    def release(self, connection: object) -> None:
        self.returned.append(connection)


def test_another_pool_and_another_process_never_get_the_kept_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    first, second, held = Pool(), Pool(), connection_io.HeldConnection()
    connection = held.take(first)
    held.keep(first, connection, intact=True)
    assert held.take(first) is connection
    held.keep(first, connection, intact=True)
    other = held.take(second)
    assert first.returned == [connection]
    held.keep(second, other, intact=True)

    with monkeypatch.context() as forked:
        forked.setattr(os, "getpid", lambda: -1)
        assert held.take(second) is not other
    assert second.returned == []  # it belongs to the parent

    held.keep(second, other, intact=True)
    with monkeypatch.context() as forked:
        forked.setattr(os, "getpid", lambda: -1)
        held.close()
    assert second.returned == []
    held.close()
    assert second.returned == []
