"""Many threads share one queue object, and none waits for the reply to another's call."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

import pytest
import redis.asyncio

from sluicegate import RedisMessageQueue
from sluicegate.asyncio.queue import RedisMessageQueue as AsyncQueue
from tests.support import state
from tests.support.proxy import Proxy, proxied
from tests.support.servers import RedisServer

T = TypeVar("T")
THREADS = 16


@pytest.fixture
def proxy(own_server: RedisServer) -> Iterator[Proxy]:
    with proxied(own_server.port) as made:
        yield made
    with own_server.client() as client:
        state.check(client)


@pytest.fixture
def shared(proxy: Proxy) -> Iterator[RedisMessageQueue]:
    queue = RedisMessageQueue("orders", url=f"redis://127.0.0.1:{proxy.port}/0", retry_budget_seconds=0)
    queue.publish("first contact, and every script known")
    with queue.claim():
        pass
    yield queue
    queue.close()


def in_threads(calls: list[Callable[[], T]]) -> list[T]:
    """Call each in a thread of its own; their results, in that order."""
    with ThreadPoolExecutor(len(calls)) as pool:
        return [future.result(60) for future in [pool.submit(call) for call in calls]]


def test_no_call_waits_for_another(shared: RedisMessageQueue, proxy: Proxy) -> None:
    with proxy.gather(THREADS):
        published = in_threads([lambda number=number: shared.publish(str(number)) for number in range(THREADS)])
    assert published == [True] * THREADS
    with proxy.gather(THREADS):
        leases = in_threads([shared.claim] * THREADS)
    assert sorted(int(lease.messages[0].text()) for lease in leases) == list(range(THREADS))
    with proxy.gather(THREADS):
        in_threads([lease.extend for lease in leases])
    with proxy.gather(THREADS):
        in_threads([lease.ack for lease in leases])
    assert [lease.counts.acked for lease in leases] == [1] * THREADS
    depth = shared.depth()
    assert (depth.ready, depth.in_flight) == (0, 0)


def test_no_batch_waits_for_another(shared: RedisMessageQueue, proxy: Proxy) -> None:
    with proxy.gather(THREADS):
        reports = in_threads(
            [
                lambda number=number: shared.publish_many([f"{number}-{at}" for at in range(10)])
                for number in range(THREADS)
            ]
        )
    assert [report.accepted for report in reports] == [10] * THREADS
    assert shared.depth().pending == 10 * THREADS


def test_a_wait_for_the_bell_holds_nobody_up(shared: RedisMessageQueue) -> None:
    with ThreadPoolExecutor(THREADS) as pool:
        waiting = [pool.submit(shared.claim, wait_seconds=20) for _ in range(THREADS)]
        shared.publish_many(str(number) for number in range(THREADS))
        leases = [future.result(30) for future in waiting]
    assert sorted(int(lease.messages[0].text()) for lease in leases) == list(range(THREADS))
    shared.close()


def test_every_message_is_handled_once(shared: RedisMessageQueue) -> None:
    each, seen, lock = 60, Counter[str](), threading.Lock()
    everything = threading.Event()

    def publish(number: int) -> None:
        for at in range(each):
            shared.publish(f"{number}-{at}")

    def consume() -> None:
        while not everything.is_set():
            with shared.claim(7, wait_seconds=0.2) as lease:
                texts = [message.text() for message in lease]
            with lock:
                seen.update(texts)
                if len(seen) == THREADS // 2 * each:
                    everything.set()

    calls: list[Callable[[], Any]] = [lambda number=number: publish(number) for number in range(THREADS // 2)]
    in_threads(calls + [consume] * (THREADS // 2))
    assert set(seen.values()) == {1}
    assert seen.keys() == {f"{number}-{at}" for number in range(THREADS // 2) for at in range(each)}


def test_no_task_waits_for_another(proxy: Proxy) -> None:
    async def main() -> None:
        queue = AsyncQueue("orders", url=f"redis://127.0.0.1:{proxy.port}/0", retry_budget_seconds=0)
        await queue.publish("first contact, and every script known")
        async with await queue.claim():
            pass
        with proxy.gather(THREADS):
            assert await asyncio.gather(*(queue.publish(str(number)) for number in range(THREADS))) == [True] * THREADS
        with proxy.gather(THREADS):
            leases = await asyncio.gather(*(queue.claim() for _ in range(THREADS)))
        assert sorted(int(lease.messages[0].text()) for lease in leases) == list(range(THREADS))
        with proxy.gather(THREADS):
            await asyncio.gather(*(lease.ack() for lease in leases))
        assert (await queue.depth()).in_flight == 0
        await queue.aclose()

    asyncio.run(main())


def test_as_many_may_sleep_as_there_are(own_server: RedisServer) -> None:
    sleepers = 110  # more than a pool of redis-py 8 holds by default

    async def main() -> None:
        async with redis.asyncio.Redis.from_url(own_server.url, max_connections=2 * sleepers) as client:
            queue = AsyncQueue("orders", client=client)
            await queue.depth()
            await asyncio.gather(*(queue.claim(wait_seconds=1) for _ in range(sleepers)))
            await queue.aclose()

    asyncio.run(main())
    with own_server.client() as client:
        assert client.info("commandstats")["cmdstat_blpop"]["calls"] == sleepers
