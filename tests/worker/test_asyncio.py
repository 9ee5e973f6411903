"""What is special to asyncio workers: async handlers, cancellation, and an event loop with other tasks."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
import redis

from sluicegate.asyncio import RedisMessageQueue
from sluicegate.asyncio.worker import Worker
from tests.support.servers import RedisServer

Test = Callable[[RedisMessageQueue], Awaitable[None]]


@pytest.fixture
def run(server: RedisServer, client: redis.Redis) -> Callable[[Test], None]:
    """Run a coroutine with a queue in an event loop of its own."""

    def start(test: Test) -> None:
        async def main() -> None:
            async with RedisMessageQueue("orders", url=server.url) as queue:
                await asyncio.wait_for(test(queue), 60)

        asyncio.run(main())

    return start


async def until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(20):
        while not condition():
            await asyncio.sleep(0.005)


def test_async_handlers_run_side_by_side_and_other_tasks_with_them(run: Any) -> None:
    async def test(queue: RedisMessageQueue) -> None:
        worker, begun, done, ticks = Worker(queue, concurrency=5), [], [], 0
        go = asyncio.Event()

        @worker.handler("created")
        async def handle(order: dict[str, Any]) -> None:
            begun.append(order["n"])
            await go.wait()
            done.append(order["n"])

        async def tick() -> None:
            nonlocal ticks
            while True:
                ticks += 1
                await asyncio.sleep(0.001)

        await queue.publish_many([{"type": "created", "n": n} for n in range(12)])
        ticking = asyncio.create_task(tick())
        async with worker:
            await until(lambda: len(begun) == 5)
            before = ticks
            await asyncio.sleep(0.1)
            assert (len(begun), ticks > before + 5) == (5, True)
            go.set()
            await until(lambda: len(done) == 12)
        ticking.cancel()
        assert (await queue.stats()).acked == 12

    run(test)


def test_a_plain_handler_runs_in_a_thread_and_blocks_no_task(run: Any) -> None:
    async def test(queue: RedisMessageQueue) -> None:
        worker, threads, go = Worker(queue, concurrency=2), [], threading.Event()

        @worker.handler("created")
        def handle(_: dict[str, Any]) -> None:
            threads.append(threading.current_thread())
            assert go.wait(20)

        await queue.publish_many([{"type": "created", "n": n} for n in range(2)])
        async with worker:
            await until(lambda: len(threads) == 2)  # this loop runs while both of them block
            go.set()
        assert threading.main_thread() not in threads
        assert len(set(threads)) == 2
        assert (await queue.stats()).acked == 2
        await until(lambda: not any(thread.is_alive() for thread in threads))

    run(test)


def test_a_stop_cancels_handlers_that_do_not_end_in_time_and_releases_their_messages(run: Any) -> None:
    async def test(queue: RedisMessageQueue) -> None:
        worker, events = Worker(queue), []

        @worker.handler("created")
        async def handle(_: dict[str, Any]) -> None:
            try:
                events.append("begun")
                await asyncio.sleep(1000)
            except asyncio.CancelledError:
                events.append("cancelled")
                raise

        await queue.publish({"type": "created"})
        await worker.start(background=True)
        await until(lambda: events)
        stopping = time.monotonic()
        assert await worker.stop(0.05) is False
        assert time.monotonic() - stopping < 4, "the handler is cancelled before its slot is"
        assert events == ["begun", "cancelled"]
        async with await queue.claim() as lease:
            assert [message.delivery_count for message in lease] == [1]

    run(test)


def test_a_handler_that_ends_when_it_is_cancelled_is_acked(run: Any) -> None:
    async def test(queue: RedisMessageQueue) -> None:
        worker, begun = Worker(queue), asyncio.Event()

        @worker.handler("created")
        async def handle(_: dict[str, Any]) -> None:
            begun.set()
            try:
                await asyncio.sleep(1000)
            except asyncio.CancelledError:
                return  # it has completed its work

        await queue.publish({"type": "created"})
        await worker.start(background=True)
        await begun.wait()
        await worker.stop(0)
        stats = await queue.stats()
        assert (stats.acked, stats.released) == (1, 0)

    run(test)


def test_cancelling_run_releases_what_it_holds_and_propagates(run: Any) -> None:
    async def test(queue: RedisMessageQueue) -> None:
        worker, begun = Worker(queue, concurrency=2), []

        @worker.handler("created")
        async def handle(_: dict[str, Any]) -> None:
            begun.append(1)
            await asyncio.sleep(1000)

        await queue.publish({"type": "created"})
        running = asyncio.create_task(worker.run())
        await until(lambda: begun)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        assert not worker.is_running
        depth = await queue.depth()
        assert (depth.ready, depth.in_flight) == (1, 0)
        assert [task for task in asyncio.all_tasks() if worker.name in task.get_name()] == []

    run(test)


def test_a_handler_that_cancels_itself_has_failed(run: Any) -> None:
    async def test(queue: RedisMessageQueue) -> None:
        worker = Worker(queue)

        @worker.handler("created")
        async def handle(_: dict[str, Any]) -> None:
            task = asyncio.current_task()
            assert task is not None
            task.cancel()
            await asyncio.sleep(1)

        await queue.publish({"type": "created"})
        report = await worker.run_once()
        assert (report.failed, report.released) == (1, 0)
        assert (await queue.depth()).delayed == 1

    run(test)


def test_a_plain_function_may_return_an_awaitable(run: Any) -> None:
    async def test(queue: RedisMessageQueue) -> None:
        worker, got = Worker(queue), []

        async def handle(order: dict[str, Any]) -> bool:
            got.append(order["n"])
            return order["n"] == 0

        def start(order: dict[str, Any]) -> Awaitable[bool]:
            return handle(order)

        worker.register("created", start)
        await queue.publish_many([{"type": "created", "n": n} for n in range(2)])
        reports = [await worker.run_once() for _ in range(2)]
        assert [(report.handled, report.failed) for report in reports] == [(1, 0), (0, 1)]
        assert got == [0, 1]

    run(test)


def test_a_plain_handler_that_raises_stop_iteration_has_failed(run: Any) -> None:
    async def test(queue: RedisMessageQueue) -> None:
        worker = Worker(queue)
        worker.register("created", lambda _: next(iter(())))
        await queue.publish({"type": "created"})
        assert (await worker.run_once()).failed == 1

    run(test)


def test_a_handler_that_ignores_its_cancellation_does_not_keep_the_worker(
    run: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sluicegate.asyncio.worker.slots._GRACE_SECONDS", 0.05)
    monkeypatch.setattr("sluicegate.asyncio.worker.slots._LAST_GRACE_SECONDS", 0.05)

    async def test(queue: RedisMessageQueue) -> None:
        worker, begun, go = Worker(queue), asyncio.Event(), asyncio.Event()

        @worker.handler("created")
        async def handle(_: dict[str, Any]) -> None:
            begun.set()
            while not go.is_set():
                try:
                    await go.wait()
                except asyncio.CancelledError:
                    continue

        await queue.publish({"type": "created"})
        await worker.start(background=True)
        await begun.wait()
        assert await worker.stop(0) is False
        depth = await queue.depth()
        assert (depth.ready, depth.in_flight) == (1, 0)
        go.set()
        await asyncio.sleep(0)

    run(test)
