"""A cancellation that code below us loses, or turns into another error, surfaces all the same."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

import pytest
import redis
import redis.asyncio
from redis import exceptions as redis_errors

from sluicegate._redis.asyncio.connection_io import exchange
from sluicegate._redis.asyncio.pools import borrow, give_back, send
from sluicegate._redis.compat import CONNECTION_FOR
from sluicegate.asyncio import RedisGateway, RedisMessageQueue
from sluicegate.core.call import Call
from sluicegate.events import QueueEvent
from tests.support import state
from tests.support.servers import RedisServer

DEADLINE_SECONDS = 60.0


def run(test: Callable[[], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(asyncio.wait_for(test(), DEADLINE_SECONDS))


async def cancelled(work: Coroutine[Any, Any, object], at: asyncio.Event) -> bool:
    """Cancel some work once it is at a point; whether it ended as cancelled."""
    task = asyncio.create_task(work)
    await at.wait()
    task.cancel()
    await asyncio.wait({task})
    return task.cancelled()


class Losing:
    """Blocks until it is cancelled, and then continues as if nothing had happened."""

    def __init__(self, outcome: Exception | None = None) -> None:
        self.reached = asyncio.Event()
        self._outcome = outcome

    async def __call__(self, *_: object, **__: object) -> None:
        self.reached.set()
        try:
            await asyncio.sleep(DEADLINE_SECONDS)
        except asyncio.CancelledError:
            if self._outcome is not None:
                raise self._outcome from None


class Pool:
    """A pool of one connection that counts what is out."""

    def __init__(self, connection: Any = None, get: Losing | None = None) -> None:
        self.connection, self.out, self.closed = connection, 0, 0
        self.lock = asyncio.Lock()
        self._get = get

    async def get_connection(self, *_: object) -> Any:
        if self._get is not None:
            await self._get()
        self.out += 1
        return self

    async def release(self, connection: object) -> None:
        async with self.lock:
            self.out -= 1

    async def disconnect(self, **_: object) -> None:
        self.closed += 1

    def pack_command(self, *command: object) -> object:
        return command

    async def send_packed_command(self, packed: object) -> None:
        await self.connection(packed)


OUTCOMES = pytest.mark.parametrize(
    "outcome", [None, redis_errors.TimeoutError("Timeout"), redis_errors.ConnectionError("reset"), OSError("reset")]
)


@OUTCOMES
def test_a_cancellation_lost_while_a_connection_is_made_surfaces(outcome: Exception | None) -> None:
    async def test() -> None:
        losing = Losing(outcome)
        pool = Pool(get=losing)
        assert await cancelled(borrow(pool), losing.reached)
        assert pool.out == 0

    run(test)


@OUTCOMES
def test_a_cancellation_lost_in_a_write_surfaces_and_drops_the_connection(outcome: Exception | None) -> None:
    async def test() -> None:
        losing = Losing(outcome)
        pool = Pool(connection=losing)
        assert await cancelled(exchange(pool, [("PING",)]), losing.reached)
        assert (pool.out, pool.closed) == (0, 1)
        assert await cancelled(send(pool, b""), losing.reached)

    run(test)


def test_a_connection_goes_back_although_its_user_is_cancelled_meanwhile() -> None:
    async def test() -> None:
        pool = Pool()
        connection = await borrow(pool)
        await pool.lock.acquire()
        task = asyncio.create_task(give_back(pool, connection, intact=False))
        await asyncio.sleep(0)
        task.cancel()
        await asyncio.sleep(0)
        pool.lock.release()
        await asyncio.wait({task})
        assert task.cancelled()
        assert (pool.out, pool.closed) == (0, 1)

    run(test)


def test_a_cluster_client_that_loses_one_while_it_looks_around(monkeypatch: pytest.MonkeyPatch) -> None:
    async def test() -> None:
        losing = Losing(redis_errors.ConnectionError("reset"))
        client = redis.asyncio.RedisCluster(host="127.0.0.1", port=1)
        monkeypatch.setattr(client, "initialize", losing)
        queue = RedisMessageQueue("orders", client=client)
        assert await cancelled(queue.depth(), losing.reached)
        await client.aclose()

    run(test)


class LosingGateway(RedisGateway):
    """A gateway of another program that loses a cancellation of one script once that has its reply."""

    script = ""

    async def execute(self, call: Call[Any], **options: Any) -> Any:
        result = await super().execute(call, **options)
        if call.script.verb == self.script:
            self.script = ""
            self.losing = Losing()
            self.at.set()
            await self.losing()
        return result


@pytest.mark.parametrize("use", ["claim", "settle", "ack", "publish", "depth"])
def test_one_that_another_gateway_loses_surfaces_and_no_lease_stays(
    server: RedisServer, client: redis.Redis, use: str
) -> None:
    async def test() -> None:
        gateway = LosingGateway(url=server.url)
        gateway.at = asyncio.Event()
        observed = {"on_event": lambda _: None} if use == "settle" else {}  # which takes the usual way
        queue = RedisMessageQueue("orders", gateway=gateway, **observed)
        await queue.publish("a")
        uses: dict[str, Callable[[], Awaitable[object]]] = {
            "claim": queue.claim,
            "settle": lambda: queue.process_message_callback(lambda _: None),
            "ack": lambda: queue.process_message_callback(lambda _: setattr(gateway, "script", "claim")),
            "publish": lambda: queue.publish("b"),
            "depth": queue.depth,
        }
        gateway.script = "" if use == "ack" else use
        assert await cancelled(uses[use](), gateway.at)
        assert not state.contents(client, "orders").ids()["in_flight"]
        await gateway.aclose()

    run(test)


@pytest.mark.parametrize("operation", ["publish", "claim", "ack"])
def test_one_that_an_observer_loses_surfaces(server: RedisServer, client: redis.Redis, operation: str) -> None:
    async def test() -> None:
        losing = Losing()

        async def on_event(event: QueueEvent) -> None:
            if event.operation == operation and not losing.reached.is_set():
                await losing()

        async def use() -> None:
            await queue.publish("a")
            await queue.process_message_callback(lambda _: None)

        queue = RedisMessageQueue("orders", url=server.url, on_event=on_event)
        assert await cancelled(use(), losing.reached)
        assert not state.contents(client, "orders").ids()["in_flight"]
        await queue.aclose()

    run(test)


def test_an_observer_that_cancels_its_own_task_leaves_no_lease(server: RedisServer, client: redis.Redis) -> None:
    async def test() -> None:
        def on_event(event: QueueEvent) -> None:
            task = asyncio.current_task()
            if event.operation == "claim" and task is not None:
                task.cancel()

        queue = RedisMessageQueue("orders", url=server.url, on_event=on_event)
        await queue.publish("a")
        task = asyncio.create_task(queue.claim())
        await asyncio.wait({task})
        assert task.cancelled()
        assert len(state.contents(client, "orders").ids()["returned"]) == 1
        await queue.aclose()

    run(test)


def test_a_cancelled_block_waits_for_no_connection_of_others(server: RedisServer, client: redis.Redis) -> None:
    """Whoever uses up the pool does not hold up the release of what it held."""

    async def test() -> None:
        pool = redis.asyncio.BlockingConnectionPool.from_url(
            server.url, max_connections=1, timeout=2 * DEADLINE_SECONDS
        )
        queue = RedisMessageQueue("orders", client=redis.asyncio.Redis(connection_pool=pool))
        await queue.publish("a")
        inside = asyncio.Event()

        async def handle() -> None:
            async with queue.process_message():
                taken.append(await pool.get_connection(*CONNECTION_FOR))
                inside.set()
                await asyncio.sleep(DEADLINE_SECONDS)

        taken: list[Any] = []
        assert await cancelled(handle(), inside)
        assert len(state.contents(client, "orders").ids()["returned"]) == 1
        await pool.release(taken[0])
        await queue.aclose()
        await pool.disconnect()

    run(test)
