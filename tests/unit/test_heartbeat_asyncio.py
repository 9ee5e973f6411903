"""The scheduler of heartbeats of an event loop, by an injected clock."""

from __future__ import annotations

import asyncio
import gc
import logging
import weakref
from collections.abc import Awaitable, Callable, Iterator
from contextvars import ContextVar

import pytest

from sluicegate.asyncio import heartbeat
from sluicegate.asyncio.heartbeat import HeartbeatScheduler

DEADLINE_SECONDS = 60


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


class Beats:
    """Something that wants to be extended every `interval` seconds, and notes when it was."""

    def __init__(self, clock: Clock, interval: float | None, gateway: object = None) -> None:
        self.clock, self.interval, self.at, self.beats_through = clock, interval, list[float](), gateway

    async def beat(self) -> float | None:
        self.at.append(self.clock.now)
        return self.interval


class Hung:
    """Its beats do not end before they are told to."""

    def __init__(self, gateway: object) -> None:
        self.beats_through, self.under_way, self.answer = gateway, asyncio.Event(), asyncio.Event()

    async def beat(self) -> float | None:
        self.under_way.set()
        await self.answer.wait()
        return None


class Counted:
    """Beats at once, again and again, until it was called so often."""

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
    """No test may leave an exception or a task behind: asyncio tells those to its log."""
    yield
    gc.collect()
    assert [record.message for record in caplog.records if record.name == "asyncio"] == []


def by_hand(clock: Clock, test: Callable[[HeartbeatScheduler], Awaitable[None]]) -> None:
    """Run a test on a scheduler that beats when it is told to."""

    async def main() -> None:
        scheduler = HeartbeatScheduler(clock)
        scheduler._start = lambda: None  # type: ignore[method-assign]  # the test is the timer
        async with asyncio.timeout(DEADLINE_SECONDS):
            await test(scheduler)

    asyncio.run(main())


def by_itself(test: Callable[[HeartbeatScheduler], Awaitable[None]]) -> None:
    async def main() -> None:
        async with asyncio.timeout(DEADLINE_SECONDS):
            await test(HeartbeatScheduler())

    asyncio.run(main())


def test_each_lease_is_beaten_for_when_it_is_due(clock: Clock) -> None:
    async def test(scheduler: HeartbeatScheduler) -> None:
        slow, fast = Beats(clock, 30), Beats(clock, 10)
        scheduler.watch(slow, 30)
        scheduler.watch(fast, 10)
        assert await scheduler.run_once() == 10
        for _ in range(6):
            clock.now += 10
            assert await scheduler.run_once() == 10
        assert fast.at == [110, 120, 130, 140, 150, 160]
        assert slow.at == [130, 160]

    by_hand(clock, test)


def test_nothing_is_beaten_for_after_unwatch(clock: Clock) -> None:
    async def test(scheduler: HeartbeatScheduler) -> None:
        lease = Beats(clock, 10)
        scheduler.watch(lease, 10)
        await scheduler.unwatch(lease)
        clock.now += 1000
        assert await scheduler.run_once() is None
        assert lease.at == []
        await scheduler.unwatch(lease)  # again does no harm

    by_hand(clock, test)


def test_unwatch_waits_for_a_beat_that_goes_on(clock: Clock) -> None:
    async def test(scheduler: HeartbeatScheduler) -> None:
        hung = Hung(None)
        scheduler.watch(hung, 0)
        beating = asyncio.create_task(scheduler.run_once())
        await hung.under_way.wait()
        leaving = asyncio.create_task(scheduler.unwatch(hung))
        for _ in range(5):
            await asyncio.sleep(0)
        assert not leaving.done()
        hung.answer.set()
        await leaving
        assert await beating is None

    by_hand(clock, test)


def test_a_waiter_that_is_cancelled_leaves_the_beat_alone(clock: Clock) -> None:
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


def test_a_beat_may_unwatch_its_own_lease(
    clock: Clock, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(heartbeat, "MAX_HEARTBEAT_SECONDS", 0.05)  # one that waited for itself would give up and say so

    async def test(scheduler: HeartbeatScheduler) -> None:
        class Quitter(Beats):
            async def beat(self) -> float | None:
                await super().beat()
                await scheduler.unwatch(self)
                return self.interval

        quitter = Quitter(clock, 1)
        scheduler.watch(quitter, 0)
        assert await scheduler.run_once() is None
        assert quitter.at == [100]

    by_hand(clock, test)
    assert caplog.text == ""


def test_one_lease_that_breaks_does_not_end_the_beats_of_others(clock: Clock, caplog: pytest.LogCaptureFixture) -> None:
    async def test(scheduler: HeartbeatScheduler) -> None:
        class Broken(Beats):
            async def beat(self) -> float | None:
                await super().beat()
                raise RuntimeError("boom")

        broken, whole = Broken(clock, 1), Beats(clock, 1)
        scheduler.watch(broken, 1)
        scheduler.watch(whole, 1)
        for _ in range(3):
            clock.now += 1
            await scheduler.run_once()
        assert broken.at == [101]
        assert whole.at == [101, 102, 103]

    by_hand(clock, test)
    assert "heartbeat failed unexpectedly" in caplog.text


def test_a_gateway_that_hangs_delays_its_own_beats_only() -> None:
    async def test(scheduler: HeartbeatScheduler) -> None:
        away, here = object(), object()
        hung, behind, elsewhere = Hung(away), Counted(away, 1), Counted(here, 100)
        scheduler.watch(hung, 0)
        await hung.under_way.wait()
        scheduler.watch(behind, 0)
        scheduler.watch(elsewhere, 0)
        await elsewhere.done.wait()
        await asyncio.sleep(0)  # its task ends
        assert not behind.done.is_set(), "one beat per gateway at a time"
        assert len(scheduler._tasks) == 1
        hung.answer.set()
        await behind.done.wait()

    by_itself(test)


def test_a_beat_sees_the_context_in_which_its_lease_was_watched(clock: Clock) -> None:
    tenant: ContextVar[str] = ContextVar("tenant", default="nobody")
    seen = list[str]()

    class Curious:
        beats_through = None

        async def beat(self) -> float | None:
            seen.append(tenant.get())
            tenant.set("changed by a beat")
            return 1

    async def test(scheduler: HeartbeatScheduler) -> None:
        acme, other = Curious(), Curious()
        tenant.set("acme")
        scheduler.watch(acme, 1)
        tenant.set("other")
        scheduler.watch(other, 1)
        tenant.set("later")
        for _ in range(2):
            clock.now += 1
            await scheduler.run_once()
        assert tenant.get() == "later"

    by_hand(clock, test)
    assert seen == ["acme", "other"] * 2


def test_the_timer_serves_a_lease_watched_later() -> None:
    async def test(scheduler: HeartbeatScheduler) -> None:
        far, near = Counted(None, 1), Counted(None, 1)
        scheduler.watch(far, 3600)
        scheduler.watch(near, 0)
        await near.done.wait()
        assert not far.done.is_set()

    by_itself(test)


def test_beats_that_were_cancelled_with_all_tasks_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(heartbeat, "RETRY_SECONDS", 0.01)

    async def test(scheduler: HeartbeatScheduler) -> None:
        hung, behind = Hung(None), Counted(None, 1)
        scheduler.watch(hung, 0)
        await hung.under_way.wait()
        scheduler.watch(behind, 0)
        hung.under_way.clear()
        hung.answer.set()
        for task in scheduler._tasks:
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
        assert scheduler._timer is None
        assert asyncio.all_tasks() == {asyncio.current_task()}

    by_itself(test)


def test_each_loop_has_its_own() -> None:
    async def mine() -> HeartbeatScheduler:
        return heartbeat.scheduler()

    assert asyncio.run(mine()) is not asyncio.run(mine())
