"""The scheduler of heartbeats in both flavours, by an injected clock or on its own time."""

from __future__ import annotations

import asyncio
import gc
import threading
import time
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from typing import Any

import pytest

import sluicegate.asyncio.heartbeat
import sluicegate.heartbeat
from tests.support.flavours import Blocking, Loop
from tests.support.waiting import DEADLINE_SECONDS, wait_until


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


class Flavour:
    """Makes schedulers and leases of one flavour; schedulers have the synchronous interface."""

    def __init__(self, loop: Loop | None, clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
        self.loop, self.clock, self._monkeypatch = loop, clock, monkeypatch
        self.module: Any = sluicegate.asyncio.heartbeat if loop else sluicegate.heartbeat

    def by_itself(self) -> Any:
        """Return a scheduler that runs in real time."""
        return self._shown(self.module.HeartbeatScheduler())

    def by_hand(self) -> Any:
        """Return a scheduler by the test's clock, which sends what is due when the test says so."""
        made = self.module.HeartbeatScheduler(self.clock)
        self._monkeypatch.setattr(made._workers, "_set_timer" if self.loop else "wake", lambda *_: None)
        return self._shown(made)

    def lease(self, beat: Callable[[], float | None], gateway: object = None) -> Any:
        """Something that wants to be extended; its heartbeat may block."""
        if self.loop is None:
            return Sync(beat, gateway)
        return Async(beat, gateway)

    def _shown(self, made: Any) -> Any:
        return Blocking(made, self.loop) if self.loop else made


class Sync:
    def __init__(self, beat: Callable[[], float | None], gateway: object) -> None:
        self.function, self.beats_through = beat, gateway

    def beat(self) -> float | None:
        return self.function()


class Async(Sync):
    async def beat(self) -> float | None:  # type: ignore[override]
        return await asyncio.to_thread(self.function)


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture(params=[False, True], ids=["sync", "asyncio"])
def flavour(request: pytest.FixtureRequest, clock: Clock, monkeypatch: pytest.MonkeyPatch) -> Iterator[Flavour]:
    loop = Loop() if request.param else None
    yield Flavour(loop, clock, monkeypatch)
    if loop:
        loop.close()


@pytest.fixture
def scheduler(flavour: Flavour) -> Any:
    return flavour.by_hand()


class Noted:
    """Counts the heartbeats of a lease by their times."""

    def __init__(self, flavour: Flavour, interval: float | None) -> None:
        self.at: list[float] = []
        self.lease = flavour.lease(self._beat)
        self._clock, self._interval = flavour.clock, interval

    def _beat(self) -> float | None:
        self.at.append(self._clock.now)
        return self._interval


class Hung:
    """Heartbeats of a gateway whose server does not answer before the test lets it."""

    def __init__(self, flavour: Flavour, gateway: object = None) -> None:
        self.under_way, self.answer = threading.Event(), threading.Event()
        self.lease = flavour.lease(self._beat, gateway)
        self.ended = False

    def _beat(self) -> float | None:
        self.under_way.set()
        assert self.answer.wait(DEADLINE_SECONDS)
        self.ended = True
        return 1


class Counted:
    """Wants heartbeats at once, again and again, until it had this many."""

    def __init__(self, flavour: Flavour, most: int, gateway: object = None) -> None:
        self.left, self.done = most, threading.Event()
        self.lease = flavour.lease(self.beat, gateway)

    def beat(self) -> float | None:
        self.left -= 1
        if self.left == 0:
            self.done.set()
            return None
        return 0


def test_each_lease_is_extended_when_it_is_due(flavour: Flavour, clock: Clock, scheduler: Any) -> None:
    slow, fast = Noted(flavour, 30), Noted(flavour, 10)
    scheduler.watch(slow.lease, 30)
    scheduler.watch(fast.lease, 10)
    assert scheduler.run_once() == 10
    for _ in range(6):
        clock.now += 10
        assert scheduler.run_once() == 10
    assert fast.at == [110, 120, 130, 140, 150, 160]
    assert slow.at == [130, 160]


def test_nothing_is_sent_after_unwatch(flavour: Flavour, clock: Clock, scheduler: Any) -> None:
    noted = Noted(flavour, 10)
    scheduler.watch(noted.lease, 10)
    scheduler.unwatch(noted.lease)
    clock.now += 1000
    assert scheduler.run_once() is None
    assert noted.at == []
    scheduler.unwatch(noted.lease)  # again does no harm


def test_watching_again_replaces_the_earlier_schedule(flavour: Flavour, clock: Clock, scheduler: Any) -> None:
    noted = Noted(flavour, 50)
    scheduler.watch(noted.lease, 10)
    scheduler.watch(noted.lease, 20)
    clock.now += 10
    assert scheduler.run_once() == 10
    clock.now += 10
    assert scheduler.run_once() == 50
    assert noted.at == [120]


def test_a_lease_that_wants_no_more_is_forgotten(flavour: Flavour, clock: Clock, scheduler: Any) -> None:
    noted = Noted(flavour, None)
    scheduler.watch(noted.lease, 1)
    clock.now += 1
    assert scheduler.run_once() is None
    assert noted.at == [101]


def test_one_lease_that_breaks_does_not_end_the_heartbeats_of_others(
    flavour: Flavour, clock: Clock, scheduler: Any, caplog: pytest.LogCaptureFixture
) -> None:
    at: list[float] = []

    def boom() -> float | None:
        at.append(clock.now)
        raise RuntimeError("boom")

    broken, whole = flavour.lease(boom), Noted(flavour, 1)
    scheduler.watch(broken, 1)
    scheduler.watch(whole.lease, 1)
    for _ in range(3):
        clock.now += 1
        scheduler.run_once()
    assert at == [101]
    assert whole.at == [101, 102, 103]
    assert "heartbeat failed unexpectedly" in caplog.text


def test_unwatch_waits_for_a_heartbeat_that_is_under_way(
    flavour: Flavour, clock: Clock, scheduler: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(flavour.module, "MAX_HEARTBEAT_SECONDS", DEADLINE_SECONDS)
    hung, ended_before = Hung(flavour), list[bool]()
    scheduler.watch(hung.lease, 1)
    clock.now += 1
    sending = threading.Thread(target=scheduler.run_once)
    sending.start()
    assert hung.under_way.wait(DEADLINE_SECONDS)

    def leave() -> None:
        scheduler.unwatch(hung.lease)
        ended_before.append(hung.ended)

    leaving = threading.Thread(target=leave)
    leaving.start()
    wait_until(lambda: hung.lease not in scheduler._due, "the leaver holds nothing but its wait")
    hung.answer.set()
    leaving.join(DEADLINE_SECONDS)
    sending.join(DEADLINE_SECONDS)
    assert ended_before == [True]
    clock.now += 100
    assert scheduler.run_once() is None


def test_a_heartbeat_may_unwatch_its_own_lease(
    flavour: Flavour, scheduler: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(flavour.module, "MAX_HEARTBEAT_SECONDS", 0.05)  # one that waited for itself would give up
    times = list[str]()

    class Quitter:
        beats_through = None

        def beat(self) -> float | None:
            times.append("sent")
            scheduler.unwatch(self)
            return 1

    class AsyncQuitter:
        beats_through = None

        async def beat(self) -> float | None:
            times.append("sent")
            await scheduler._target.unwatch(self)
            return 1

    quitter = AsyncQuitter() if flavour.loop else Quitter()
    scheduler.watch(quitter, 0)
    assert scheduler.run_once() is None
    assert times == ["sent"]
    assert caplog.text == ""


def test_unwatch_gives_up_on_a_heartbeat_that_does_not_end(
    flavour: Flavour, scheduler: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(flavour.module, "MAX_HEARTBEAT_SECONDS", 0.05)
    hung = Hung(flavour)
    scheduler.watch(hung.lease, 0)
    sending = threading.Thread(target=scheduler.run_once)
    sending.start()
    assert hung.under_way.wait(DEADLINE_SECONDS)
    scheduler.unwatch(hung.lease)
    assert "is not waited for" in caplog.text
    hung.answer.set()
    sending.join(DEADLINE_SECONDS)


def test_a_gateway_that_hangs_delays_its_own_heartbeats_only(flavour: Flavour) -> None:
    scheduler, away, here = flavour.by_itself(), object(), object()
    hung, behind, elsewhere = Hung(flavour, away), Counted(flavour, 1, away), Counted(flavour, 100, here)
    scheduler.watch(hung.lease, 0)
    assert hung.under_way.wait(DEADLINE_SECONDS)
    scheduler.watch(behind.lease, 0)
    scheduler.watch(elsewhere.lease, 0)
    assert elsewhere.done.wait(DEADLINE_SECONDS)
    assert not behind.done.is_set(), "one heartbeat per gateway at a time"
    wait_until(lambda: workers(flavour, scheduler) == 1, "a gateway without due heartbeats has no worker")
    scheduler.unwatch(elsewhere.lease)
    hung.answer.set()
    assert behind.done.wait(DEADLINE_SECONDS)
    scheduler.unwatch(hung.lease)
    wait_until(lambda: workers(flavour, scheduler) == 0, "nor has any other")


def workers(flavour: Flavour, scheduler: Any) -> int:
    """Return how many threads or tasks send heartbeats."""
    if flavour.loop:
        return len(scheduler._workers.tasks)
    return sum(thread.name == "sluicegate-beats" for thread in threading.enumerate())


def test_heartbeats_of_one_gateway_never_overlap(flavour: Flavour) -> None:
    scheduler, gateway, overlaps = flavour.by_itself(), object(), list[int]()
    inside = threading.Lock()

    class Jealous(Counted):
        def beat(self) -> float | None:
            alone = inside.acquire(blocking=False)
            time.sleep(0.001)  # what a round trip takes: others would fall due meanwhile
            after = super().beat()
            if alone:
                inside.release()
            else:
                overlaps.append(self.left)
            return after

    counted = [Jealous(flavour, 10, gateway) for _ in range(20)]
    for each in counted:
        scheduler.watch(each.lease, 0)
    assert all(each.done.wait(DEADLINE_SECONDS) for each in counted)
    assert overlaps == []


def test_a_heartbeat_sees_the_context_in_which_its_lease_was_watched(
    flavour: Flavour, clock: Clock, scheduler: Any
) -> None:
    tenant: ContextVar[str] = ContextVar("tenant", default="nobody")
    seen = list[str]()

    def curious() -> float | None:
        seen.append(tenant.get())
        tenant.set("changed by a heartbeat")
        return 1

    acme, other = flavour.lease(curious), flavour.lease(curious)
    tenant.set("acme")
    scheduler.watch(acme, 1)
    tenant.set("other")
    scheduler.watch(other, 1)
    tenant.set("later")
    for _ in range(2):
        clock.now += 1
        scheduler.run_once()
    assert seen == ["acme", "other"] * 2
    assert tenant.get() == "later"


def test_a_lease_that_nobody_holds_is_not_extended_for_ever(flavour: Flavour, clock: Clock, scheduler: Any) -> None:
    noted = Noted(flavour, 1)
    at = noted.at
    scheduler.watch(noted.lease, 1)
    clock.now += 1
    assert scheduler.run_once() == 1
    del noted
    gc.collect()
    clock.now += 1
    assert scheduler.run_once() is None
    assert at == [101]
    assert len(scheduler._due) == 0


def test_a_lease_that_ended_takes_no_room_until_it_would_have_been_due(
    flavour: Flavour, clock: Clock, scheduler: Any
) -> None:
    held = Noted(flavour, 1000)
    scheduler.watch(held.lease, 1000)
    for _ in range(1_000 if flavour.loop else 10_000):
        ended = Noted(flavour, 1000)
        scheduler.watch(ended.lease, 1000)
        scheduler.unwatch(ended.lease)
    assert len(scheduler._due) == 1
    assert len(scheduler._due._heap) < 100
    clock.now += 1000
    assert scheduler.run_once() == 1000
    assert held.at == [1100]


def test_the_timer_serves_a_lease_watched_later(flavour: Flavour) -> None:
    scheduler, far, near = flavour.by_itself(), Counted(flavour, 1), Counted(flavour, 1)
    scheduler.watch(far.lease, 3600)
    scheduler.watch(near.lease, 0)
    assert near.done.wait(DEADLINE_SECONDS)
    assert not far.done.is_set()
    scheduler.unwatch(far.lease)
