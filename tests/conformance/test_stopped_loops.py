"""Loops over a queue that has stopped: each call lets others run, so that those can end the loop."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager, suppress
from typing import Any

import pytest
import redis

from sluicegate import EventDrivenInterruptHandler, RedisMessageQueue
from sluicegate.asyncio import RedisMessageQueue as AsyncQueue
from sluicegate.errors import PublishUnknownError, QueueDrainedError
from tests.support.servers import PROGRAMS, RedisServer

CALLS = 100
DEADLINE_SECONDS = 60.0
Use = Callable[[Any], Awaitable[object]]
pytestmark = pytest.mark.parametrize("server", PROGRAMS[:1], indirect=True, ids=lambda path: path.name)


async def process(queue: AsyncQueue) -> None:
    async with queue.process_message() as payload:
        assert payload is None


async def publish_chunks(queue: AsyncQueue, payloads: str = "ab") -> None:
    async for _ in queue.publish_chunks(payloads):
        pytest.fail("it publishes no more")


CLAIMS: dict[str, Use] = {
    "claim": lambda queue: queue.claim(),
    "claim that waits": lambda queue: queue.claim(wait_seconds=60),
    "process_message": process,
    "process_message_callback": lambda queue: queue.process_message_callback(pytest.fail),
}
PUBLISHES: dict[str, Use] = {
    "publish": lambda queue: queue.publish("a"),
    "publish_many": lambda queue: queue.publish_many("ab"),
    "publish_many of nothing": lambda queue: queue.publish_many([]),
    "publish_chunks": publish_chunks,
    "publish_chunks of nothing": lambda queue: publish_chunks(queue, ""),
    "publish_again": lambda queue: queue.publish_again(PublishUnknownError("too late", ids=[])),
}
ENDS: dict[str, Use] = {
    "drain": lambda queue: queue.drain(),
    "drain(0)": lambda queue: queue.drain(0),
    "drain(None)": lambda queue: queue.drain(None),
    "aclose": lambda queue: queue.aclose(),
}
USES = CLAIMS | PUBLISHES | ENDS


def run(test: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(test, DEADLINE_SECONDS))


@asynccontextmanager
async def ticking() -> AsyncIterator[Callable[[], int]]:
    """Run another task; yield a function that returns how often it ran."""
    ticks = 0

    async def tick() -> None:
        nonlocal ticks
        while True:
            ticks += 1
            await asyncio.sleep(0)

    task = asyncio.create_task(tick())
    try:
        yield lambda: ticks
    finally:
        task.cancel()


async def let_others_run(call: Callable[[], Awaitable[object]]) -> int:
    """Return how often another task runs during a number of calls."""
    async with ticking() as ticks:
        for _ in range(CALLS):
            with suppress(QueueDrainedError, PublishUnknownError):
                await call()
        return ticks()


@pytest.mark.parametrize("use", USES)
@pytest.mark.parametrize("end", ["drain", "aclose"])
def test_what_returns_at_once_lets_other_tasks_run(
    server: RedisServer, client: redis.Redis, end: str, use: str
) -> None:
    async def test() -> None:
        queue = AsyncQueue("orders", url=server.url)
        await getattr(queue, end)()
        assert await let_others_run(lambda: USES[use](queue)) >= CALLS

    run(test())


@pytest.mark.parametrize("use", CLAIMS | ENDS)
def test_so_does_an_interrupted_queue(server: RedisServer, client: redis.Redis, use: str) -> None:
    async def test() -> None:
        stop = asyncio.Event()
        stop.set()
        queue = AsyncQueue("orders", url=server.url, interrupt=EventDrivenInterruptHandler(stop))
        assert await let_others_run(lambda: USES[use](queue)) >= CALLS

    run(test())


@pytest.mark.parametrize("verb", ["ack", "nack", "release", "bury", "settle"])
def test_so_does_a_lease_that_holds_nothing(server: RedisServer, client: redis.Redis, verb: str) -> None:
    async def test() -> None:
        queue = AsyncQueue("orders", url=server.url)
        await queue.drain(0)
        lease = await queue.claim()
        assert await let_others_run(getattr(lease, verb)) >= CALLS

    run(test())


@pytest.mark.parametrize("use", CLAIMS)
def test_a_loop_does_not_keep_drain_from_returning(server: RedisServer, client: redis.Redis, use: str) -> None:
    """It waits for a message that another task handles, next to a consumer that keeps asking."""

    async def test() -> None:
        queue = AsyncQueue("orders", url=server.url)
        await queue.publish("a")
        working, stop, finish = asyncio.Event(), asyncio.Event(), asyncio.Event()

        async def work() -> None:
            async with queue.process_message() as payload:
                assert payload == b"a"
                working.set()
                await finish.wait()

        async def consume() -> None:
            await working.wait()
            while not stop.is_set():
                await CLAIMS[use](queue)

        async def shut_down() -> None:
            await working.wait()
            asyncio.get_running_loop().call_later(0.1, finish.set)
            assert await queue.drain(DEADLINE_SECONDS)
            stop.set()

        await asyncio.gather(work(), consume(), shut_down())
        await queue.aclose()

    run(test())
    assert client.keys("*:lease:*") == []


def test_threads_give_way_as_often(client: redis.Redis, monkeypatch: pytest.MonkeyPatch) -> None:
    queue, gave_way = RedisMessageQueue("orders", client=client), threading.Semaphore(0)
    for module in ("consumer", "publisher", "session", "operation_runner"):
        monkeypatch.setattr(f"sluicegate.{module}.give_way", gave_way.release)
    queue.drain(0)
    lease = queue.claim()
    lease.ack()
    queue.process_message_callback(pytest.fail)
    with queue.process_message() as payload:
        assert payload is None
    for publish in (queue.publish, queue.publish_many):
        with pytest.raises(QueueDrainedError):
            publish("a")
    queue.close()
    for _ in range(8):
        assert gave_way.acquire(blocking=False), "each of these calls gives way"
    assert not gave_way.acquire(blocking=False), "once"
