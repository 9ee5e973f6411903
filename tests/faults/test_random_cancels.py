"""Cancellations and timeouts at any moment: each surfaces, and no connection and no message is left behind."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager, suppress
from typing import Any

import pytest
import redis
import redis.asyncio

from sluicegate._redis.compat import CONNECTION_FOR
from sluicegate.asyncio import RedisMessageQueue
from sluicegate.errors import LeaseLostError
from tests.support import state
from tests.support.servers import PROGRAMS, RedisServer
from tests.support.settings import THOROUGH

CANCELS = 2000 if THOROUGH else 150
TASKS, CONNECTIONS = 4, 2
PROMPTLY_SECONDS = 10.0  # a cancellation that was lost comes never, or after the wait of a claim
WAIT_SECONDS = 30.0
LATEST_SECONDS = 0.012

Use = Callable[[RedisMessageQueue], Coroutine[Any, Any, object]]
ONE_SERVER = pytest.mark.parametrize("server", PROGRAMS[:1], indirect=True, ids=lambda path: path.name)


async def handle(queue: RedisMessageQueue) -> None:
    async with queue.process_message() as payload:
        assert payload is not None
        await asyncio.sleep(0)


async def work(queue: RedisMessageQueue) -> None:
    async with await queue.claim(5, wait_seconds=WAIT_SECONDS) as lease:
        for message in lease:
            await lease.ack(message)


async def publish_ahead(queue: RedisMessageQueue) -> None:
    await queue.publish_many(str(number) for number in range(1100))


async def take_over(queue: RedisMessageQueue) -> None:
    lease = await queue.claim(3, lease_id="run", take_over_after_seconds=0)
    with suppress(LeaseLostError):  # another took it over in turn
        await lease.nack()


USES: list[Use] = [
    handle,
    work,
    publish_ahead,
    take_over,
    lambda queue: queue.publish("a"),
    lambda queue: queue.depth(),
    lambda queue: queue.purge("pending"),
]


class FreshPool(redis.asyncio.BlockingConnectionPool):
    """A pool whose connections live for one use, so that most of what is cancelled is at a handshake."""

    async def release(self, connection: Any) -> None:
        await connection.disconnect(nowait=True)
        await super().release(connection)


@asynccontextmanager
async def small_queue(server: RedisServer, **options: Any) -> AsyncIterator[tuple[RedisMessageQueue, Any]]:
    """Yield a queue over a pool of two connections, for which its users wait."""
    pool = FreshPool.from_url(server.url, max_connections=CONNECTIONS, timeout=WAIT_SECONDS)
    queue = RedisMessageQueue("orders", client=redis.asyncio.Redis(connection_pool=pool), **options)
    try:
        yield queue, pool
    finally:
        await queue.aclose()
        await pool.disconnect()


async def over_and_over(queue: RedisMessageQueue, randomly: random.Random) -> None:
    while True:
        await randomly.choice(USES)(queue)


async def is_whole(pool: Any) -> bool:
    """Return whether every connection of a pool is free, and no more than these exist."""
    async with asyncio.timeout(PROMPTLY_SECONDS):
        had = [await pool.get_connection(*CONNECTION_FOR) for _ in range(CONNECTIONS)]
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.05):
            await pool.get_connection(*CONNECTION_FOR)
    for connection in had:
        await pool.release(connection)
    return True


@ONE_SERVER
@pytest.mark.timeout(120 * (1 + THOROUGH))
def test_every_cancellation_surfaces_and_nothing_leaks(server: RedisServer, client: redis.Redis) -> None:
    randomly = random.Random(9)

    async def main() -> None:
        async with small_queue(server, message_wait_interval_seconds=WAIT_SECONDS) as (queue, pool):
            tasks = [asyncio.create_task(over_and_over(queue, randomly)) for _ in range(TASKS)]
            for number in range(CANCELS):
                await asyncio.sleep(LATEST_SECONDS * randomly.random())
                position = randomly.randrange(TASKS)
                tasks[position].cancel()
                await asyncio.wait({tasks[position]}, timeout=PROMPTLY_SECONDS)
                assert tasks[position].done(), f"cancellation {number} was lost"
                assert tasks[position].cancelled(), f"cancellation {number}: {tasks[position].exception()!r}"
                tasks[position] = asyncio.create_task(over_and_over(queue, randomly))
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks, timeout=PROMPTLY_SECONDS)
            assert all(task.cancelled() for task in tasks)
            assert await is_whole(pool)

    asyncio.run(main())
    assert not state.contents(client, "orders").ids().get("in_flight")


@ONE_SERVER
@pytest.mark.timeout(120 * (1 + THOROUGH))
def test_no_timeout_is_overshot(server: RedisServer, client: redis.Redis) -> None:
    randomly = random.Random(9)

    async def main() -> None:
        for number in range(CANCELS):
            async with small_queue(server) as (queue, pool):
                begun = asyncio.get_running_loop().time()
                with pytest.raises(TimeoutError):
                    async with asyncio.timeout(LATEST_SECONDS * randomly.random()):
                        await queue.claim(wait_seconds=WAIT_SECONDS)
                late = asyncio.get_running_loop().time() - begun
                assert late < PROMPTLY_SECONDS, f"timeout {number} was overshot by {late:.1f} s"
                if number % 50 == 0:
                    assert await is_whole(pool)

    asyncio.run(main())
