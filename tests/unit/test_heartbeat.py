"""The scheduler of heartbeats, by an injected clock."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from sluicegate import heartbeat
from sluicegate.heartbeat import HeartbeatScheduler


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


class Beats:
    """Something that wants to be extended every `interval` seconds, and notes when it was."""

    def __init__(self, clock: Clock, interval: float | None) -> None:
        self.clock, self.interval, self.at = clock, interval, list[float]()

    def beat(self) -> float | None:
        self.at.append(self.clock.now)
        return self.interval


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def scheduler(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> HeartbeatScheduler:
    made = HeartbeatScheduler(clock)
    monkeypatch.setattr(made, "_start", lambda: None)  # the test is the thread
    return made


def test_each_lease_is_beaten_for_when_it_is_due(clock: Clock, scheduler: HeartbeatScheduler) -> None:
    slow, fast = Beats(clock, 30), Beats(clock, 10)
    scheduler.watch(slow, 30)
    scheduler.watch(fast, 10)
    assert scheduler.run_once() == 10
    for _ in range(6):
        clock.now += 10
        assert scheduler.run_once() == 10
    assert fast.at == [110, 120, 130, 140, 150, 160]
    assert slow.at == [130, 160]


def test_nothing_is_beaten_for_after_unwatch(clock: Clock, scheduler: HeartbeatScheduler) -> None:
    lease = Beats(clock, 10)
    scheduler.watch(lease, 10)
    scheduler.unwatch(lease)
    clock.now += 1000
    assert scheduler.run_once() is None
    assert lease.at == []
    scheduler.unwatch(lease)  # again does no harm


def test_watching_again_replaces_the_earlier_beat(clock: Clock, scheduler: HeartbeatScheduler) -> None:
    lease = Beats(clock, 50)
    scheduler.watch(lease, 10)
    scheduler.watch(lease, 20)
    clock.now += 10
    assert scheduler.run_once() == 10
    clock.now += 10
    assert scheduler.run_once() == 50
    assert lease.at == [120]


def test_a_lease_that_wants_no_more_is_forgotten(clock: Clock, scheduler: HeartbeatScheduler) -> None:
    lease = Beats(clock, None)
    scheduler.watch(lease, 1)
    clock.now += 1
    assert scheduler.run_once() is None
    assert lease.at == [101]


def test_one_lease_that_breaks_does_not_end_the_beats_of_others(
    clock: Clock, scheduler: HeartbeatScheduler, caplog: pytest.LogCaptureFixture
) -> None:
    class Broken(Beats):
        def beat(self) -> float | None:
            super().beat()
            raise RuntimeError("boom")

    broken, whole = Broken(clock, 1), Beats(clock, 1)
    scheduler.watch(broken, 1)
    scheduler.watch(whole, 1)
    for _ in range(3):
        clock.now += 1
        scheduler.run_once()
    assert broken.at == [101]
    assert whole.at == [101, 102, 103]
    assert "heartbeat failed unexpectedly" in caplog.text


def test_unwatch_waits_for_a_beat_that_goes_on(clock: Clock, scheduler: HeartbeatScheduler) -> None:
    begun, go_on, order = threading.Event(), threading.Event(), list[str]()

    class Slow:
        def beat(self) -> float | None:
            begun.set()
            assert go_on.wait(20)
            order.append("beat ended")
            return 1

    lease = Slow()
    scheduler.watch(lease, 1)
    clock.now += 1
    beating = threading.Thread(target=scheduler.run_once)
    beating.start()
    assert begun.wait(20)

    def leave() -> None:
        scheduler.unwatch(lease)
        order.append("unwatched")

    leaving = threading.Thread(target=leave)
    leaving.start()
    while lease in (watched for watched in _watched(scheduler)):  # until the leaver holds nothing but its wait
        pass
    go_on.set()
    leaving.join(20)
    beating.join(20)
    assert order == ["beat ended", "unwatched"]
    clock.now += 100
    assert scheduler.run_once() is None


def _watched(scheduler: HeartbeatScheduler) -> list[Any]:
    with scheduler._changed:
        numbers = set(scheduler._watched)
    return [lease for lease in scheduler._beating if id(lease) in numbers]


def test_the_thread_serves_a_lease_watched_later(clock: Clock) -> None:
    beaten = threading.Event()

    class Once:
        def beat(self) -> float | None:
            beaten.set()
            return None

    scheduler = HeartbeatScheduler()
    scheduler.watch(Once(), 3600)
    scheduler.watch(Once(), 0)
    assert beaten.wait(20)


def test_a_forked_child_has_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    mine = heartbeat.scheduler()
    assert heartbeat.scheduler() is mine
    monkeypatch.setattr(heartbeat, "_scheduler", mine)
    heartbeat._forget_after_fork()
    assert heartbeat.scheduler() is not mine
