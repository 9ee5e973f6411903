"""What sends heartbeats: threads of a process, or the tasks of an event loop."""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import threading
import weakref
from collections.abc import Awaitable, Callable, Iterator

import pytest

import sluicegate.heartbeat as threads
import sluicegate.heartbeat_workers
from sluicegate.asyncio import heartbeat
from sluicegate.asyncio.heartbeat import HeartbeatScheduler
from tests.support.waiting import DEADLINE_SECONDS


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


class Hung:
    """Its heartbeats do not end before the test lets them."""

    def __init__(self, gateway: object) -> None:
        self.beats_through, self.under_way, self.answer = gateway, asyncio.Event(), asyncio.Event()

    async def beat(self) -> float | None:
        self.under_way.set()
        await self.answer.wait()
        return None


class Counted:
    """Wants heartbeats at once, again and again, until it had this many."""

    def __init__(self, gateway: object, most: int) -> None:
        self.beats_through, self.left, self.done = gateway, most, asyncio.Event()

    async def beat(self) -> float | None:
        self.left -= 1
        await asyncio.sleep(0)
        if self.left == 0:
            self.done.set()
            return None
        return 0


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture(autouse=True)
def quiet(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """No test may leave an exception or a task behind: asyncio logs those."""
    yield
    gc.collect()
    assert [record.message for record in caplog.records if record.name == "asyncio"] == []


def by_hand(clock: Clock, test: Callable[[HeartbeatScheduler], Awaitable[None]]) -> None:
    """Run a test on a scheduler that sends what is due when the test says so."""

    async def main() -> None:
        scheduler = HeartbeatScheduler(clock)
        scheduler._workers._set_timer = lambda: None  # type: ignore[method-assign]  # the test is the timer
        async with asyncio.timeout(DEADLINE_SECONDS):
            await test(scheduler)

    asyncio.run(main())


def by_itself(test: Callable[[HeartbeatScheduler], Awaitable[None]]) -> None:
    async def main() -> None:
        async with asyncio.timeout(DEADLINE_SECONDS):
            await test(HeartbeatScheduler())

    asyncio.run(main())


def test_a_waiter_that_is_cancelled_leaves_the_heartbeat_alone(clock: Clock) -> None:
    async def test(scheduler: HeartbeatScheduler) -> None:
        hung = Hung(None)
        scheduler.watch(hung, 0)
        beating = asyncio.create_task(scheduler.run_once())
        await hung.under_way.wait()
        leaving = asyncio.create_task(scheduler.unwatch(hung))
        await asyncio.sleep(0)
        leaving.cancel()
        with pytest.raises(asyncio.CancelledError):
            await leaving
        assert not beating.done()
        hung.answer.set()
        assert await beating is None

    by_hand(clock, test)


def test_heartbeats_that_were_cancelled_with_all_tasks_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(heartbeat, "RETRY_SECONDS", 0.01)

    async def test(scheduler: HeartbeatScheduler) -> None:
        hung, behind = Hung(None), Counted(None, 1)
        scheduler.watch(hung, 0)
        await hung.under_way.wait()
        scheduler.watch(behind, 0)
        hung.under_way.clear()
        hung.answer.set()
        for task in scheduler._workers.tasks:
            task.cancel()
        await hung.under_way.wait()
        await behind.done.wait()

    by_itself(test)


def test_a_loop_that_closes_leaves_nothing_behind(caplog: pytest.LogCaptureFixture) -> None:
    under_way = list[str]()

    class Asleep:
        beats_through = None

        async def beat(self) -> float | None:
            under_way.append("asleep")
            await asyncio.sleep(3600)
            return None

    leases = Asleep(), Asleep()

    async def main() -> tuple[weakref.ref[asyncio.AbstractEventLoop], weakref.ref[HeartbeatScheduler]]:
        scheduler = heartbeat.scheduler()
        assert heartbeat.scheduler() is scheduler
        scheduler.watch(leases[0], 0)
        scheduler.watch(leases[1], 3600)
        while not under_way:
            await asyncio.sleep(0)
        return weakref.ref(asyncio.get_running_loop()), weakref.ref(scheduler)

    loop, scheduler = asyncio.run(main())
    gc.collect()
    assert loop() is None
    assert scheduler() is None
    assert under_way == ["asleep"]
    assert [record for record in caplog.records if record.levelno >= logging.WARNING] == []


def test_a_loop_without_leases_has_neither_timer_nor_task() -> None:
    async def test(scheduler: HeartbeatScheduler) -> None:
        lease = Counted(None, 3)
        scheduler.watch(lease, 0)
        await lease.done.wait()
        scheduler.watch(lease, 3600)
        await scheduler.unwatch(lease)
        assert scheduler._workers._timer is None
        assert asyncio.all_tasks() == {asyncio.current_task()}

    by_itself(test)


def test_each_loop_has_its_own() -> None:
    async def mine() -> HeartbeatScheduler:
        return heartbeat.scheduler()

    assert asyncio.run(mine()) is not asyncio.run(mine())


class Timed:
    """A lease of threads that wants a heartbeat every `interval` seconds, and notes their times."""

    def __init__(self, clock: Clock, interval: float | None) -> None:
        self.clock, self.interval, self.at = clock, interval, list[float]()
        self.beats_through = None

    def beat(self) -> float | None:
        self.at.append(self.clock.now)
        return self.interval


class Blocked:
    """A lease of threads that wants one heartbeat."""

    def __init__(self, gateway: object) -> None:
        self.beats_through, self.done = gateway, threading.Event()

    def beat(self) -> float | None:
        self.done.set()
        return None


@pytest.fixture
def scheduler(clock: Clock) -> threads.HeartbeatScheduler:
    made = threads.HeartbeatScheduler(clock)
    made._workers._thread = threading.current_thread()  # the test is the thread
    return made


def test_only_a_lease_that_is_due_before_its_thread_looks_wakes_it(
    clock: Clock, scheduler: threads.HeartbeatScheduler, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A consumer of one message after the other watches thousands of leases a second, none of which is ever due."""
    woken: list[float] = []
    monkeypatch.setattr(scheduler._workers._changed, "notify_all", lambda: woken.append(clock.now))
    monkeypatch.setattr(scheduler._workers._changed, "wait", lambda seconds: True)
    scheduler._workers._sleep()  # as its thread does while nothing is watched
    leases = [Timed(clock, 100) for _ in range(3)]
    scheduler.watch(leases[0], 100)
    assert woken == [100], "an idle thread is woken: it would sleep for long"
    scheduler._workers._sleep()
    clock.now = 101
    scheduler.watch(leases[1], 100)
    assert woken == [100], "it looks in time by itself"
    scheduler.watch(leases[2], 1)
    assert woken == [100, 101]


def test_heartbeats_go_on_when_a_thread_cannot_be_had(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sluicegate.heartbeat_workers, "RETRY_SECONDS", 0.01)
    start, refused = threading.Thread.start, threading.Event()

    def refuse_once(thread: threading.Thread) -> None:
        if thread.name == "sluicegate-beats" and not refused.is_set():
            refused.set()
            raise RuntimeError("can't start new thread")
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", refuse_once)
    scheduler, lease = threads.HeartbeatScheduler(), Blocked(object())
    scheduler.watch(lease, 0)
    assert lease.done.wait(DEADLINE_SECONDS)
    assert refused.is_set()


def test_a_child_forked_by_a_heartbeat_sends_none(clock: Clock, scheduler: threads.HeartbeatScheduler) -> None:
    reader, writer = os.pipe()
    parent = os.getpid()

    class Forking(Timed):
        child = 0

        def beat(self) -> float | None:
            self.child = os.fork()
            return None

    class Telling(Timed):
        def beat(self) -> float | None:
            if os.getpid() != parent:
                os.write(writer, b"a beat in the child")
            return super().beat()

    forking, behind = Forking(clock, None), Telling(clock, None)
    scheduler.watch(forking, 0)
    scheduler.watch(behind, 0)
    scheduler.run_once()
    if os.getpid() != parent:
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as reported:
        assert reported.read() == ""
    os.waitpid(forking.child, 0)
    assert behind.at == [100]


def test_a_forked_child_has_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    mine = threads.scheduler()
    assert threads.scheduler() is mine
    monkeypatch.setattr(threads.scheduler, "_found", mine)
    threads.scheduler._forget()
    assert threads.scheduler() is not mine
