"""The scheduler of heartbeats, by an injected clock."""

from __future__ import annotations

import gc
import os
import threading
import time
from contextvars import ContextVar

import pytest

from sluicegate import heartbeat
from sluicegate.heartbeat import HeartbeatScheduler
from tests.support.waiting import DEADLINE_SECONDS, wait_until


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


class Beats:
    """Something that wants to be extended every `interval` seconds, and notes when it was."""

    def __init__(self, clock: Clock, interval: float | None) -> None:
        self.clock, self.interval, self.at = clock, interval, list[float]()
        self.beats_through = None

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


def test_only_a_lease_that_is_due_before_its_thread_looks_wakes_it(
    clock: Clock, scheduler: HeartbeatScheduler, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A consumer of one message after the other watches thousands of leases a second, none of which is ever due."""
    woken: list[float] = []
    monkeypatch.setattr(scheduler._changed, "notify_all", lambda: woken.append(clock.now))
    monkeypatch.setattr(scheduler._changed, "wait", lambda seconds: True)
    scheduler._sleep()  # as its thread does while nothing is watched
    leases = [Beats(clock, 100) for _ in range(3)]
    scheduler.watch(leases[0], 100)
    assert woken == [100], "an idle thread is woken: it would sleep for long"
    scheduler._sleep()
    clock.now = 101
    scheduler.watch(leases[1], 100)
    assert woken == [100], "it looks in time by itself"
    scheduler.watch(leases[2], 1)
    assert woken == [100, 101]


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


def test_unwatch_waits_for_a_beat_that_goes_on(
    clock: Clock, scheduler: HeartbeatScheduler, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(heartbeat, "MAX_HEARTBEAT_SECONDS", DEADLINE_SECONDS)
    begun, go_on, order = threading.Event(), threading.Event(), list[str]()

    class Slow:
        beats_through = None

        def beat(self) -> float | None:
            begun.set()
            assert go_on.wait(DEADLINE_SECONDS)
            order.append("beat ended")
            return 1

    lease = Slow()
    scheduler.watch(lease, 1)
    clock.now += 1
    beating = threading.Thread(target=scheduler.run_once)
    beating.start()
    assert begun.wait(DEADLINE_SECONDS)

    def leave() -> None:
        scheduler.unwatch(lease)
        order.append("unwatched")

    leaving = threading.Thread(target=leave)
    leaving.start()
    wait_until(lambda: lease not in scheduler._agenda, "the leaver holds nothing but its wait")
    go_on.set()
    leaving.join(DEADLINE_SECONDS)
    beating.join(DEADLINE_SECONDS)
    assert order == ["beat ended", "unwatched"]
    clock.now += 100
    assert scheduler.run_once() is None


def test_a_beat_may_unwatch_its_own_lease(
    clock: Clock, scheduler: HeartbeatScheduler, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(heartbeat, "MAX_HEARTBEAT_SECONDS", 0.05)  # one that waited for itself would give up and say so

    class Quitter(Beats):
        def beat(self) -> float | None:
            super().beat()
            scheduler.unwatch(self)
            return self.interval

    quitter = Quitter(clock, 1)
    scheduler.watch(quitter, 0)
    assert scheduler.run_once() is None
    assert quitter.at == [100]
    assert caplog.text == ""


def test_unwatch_gives_up_on_a_beat_that_does_not_end(
    clock: Clock, scheduler: HeartbeatScheduler, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(heartbeat, "MAX_HEARTBEAT_SECONDS", 0.05)
    begun, go_on = threading.Event(), threading.Event()

    class Stuck:
        beats_through = None

        def beat(self) -> float | None:
            begun.set()
            assert go_on.wait(DEADLINE_SECONDS)
            return None

    stuck = Stuck()
    scheduler.watch(stuck, 0)
    beating = threading.Thread(target=scheduler.run_once)
    beating.start()
    assert begun.wait(DEADLINE_SECONDS)
    scheduler.unwatch(stuck)
    assert "is not waited for" in caplog.text
    go_on.set()
    beating.join(DEADLINE_SECONDS)


class Hung:
    """Beats of a gateway whose server does not answer before it is told to."""

    def __init__(self, gateway: object) -> None:
        self.beats_through = gateway
        self.under_way, self.answer = threading.Event(), threading.Event()

    def beat(self) -> float | None:
        self.under_way.set()
        assert self.answer.wait(DEADLINE_SECONDS)
        return None


class Counted:
    """Beats at once, again and again, until it was called so often."""

    def __init__(self, gateway: object, most: int) -> None:
        self.beats_through, self.left, self.done = gateway, most, threading.Event()

    def beat(self) -> float | None:
        self.left -= 1
        if self.left == 0:
            self.done.set()
            return None
        return 0


def test_a_gateway_that_hangs_delays_its_own_beats_only() -> None:
    scheduler, away, here = HeartbeatScheduler(), object(), object()
    hung, behind, elsewhere = Hung(away), Counted(away, 1), Counted(here, 100)
    scheduler.watch(hung, 0)
    assert hung.under_way.wait(DEADLINE_SECONDS)
    scheduler.watch(behind, 0)
    scheduler.watch(elsewhere, 0)
    assert elsewhere.done.wait(DEADLINE_SECONDS)
    assert not behind.done.is_set(), "one beat per gateway at a time"
    hung.answer.set()
    assert behind.done.wait(DEADLINE_SECONDS)
    wait_until(lambda: beat_threads() == [], "a gateway without due beats has no thread")


def test_beats_of_one_gateway_never_overlap() -> None:
    scheduler, gateway, overlaps = HeartbeatScheduler(), object(), list[int]()
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

    leases = [Jealous(gateway, 10) for _ in range(20)]
    for lease in leases:
        scheduler.watch(lease, 0)
    assert all(lease.done.wait(DEADLINE_SECONDS) for lease in leases)
    assert overlaps == []


def beat_threads() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name == "sluicegate-beats"]


def test_a_beat_sees_the_context_in_which_its_lease_was_watched(clock: Clock, scheduler: HeartbeatScheduler) -> None:
    tenant: ContextVar[str] = ContextVar("tenant", default="nobody")
    seen = list[str]()

    class Curious:
        beats_through = None

        def beat(self) -> float | None:
            seen.append(tenant.get())
            tenant.set("changed by a beat")
            return 1

    acme, other = Curious(), Curious()
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


def test_a_lease_that_nobody_holds_is_not_extended_for_ever(clock: Clock, scheduler: HeartbeatScheduler) -> None:
    at = list[float]()

    class Abandoned(Beats):
        def beat(self) -> float | None:
            at.append(self.clock.now)
            return super().beat()

    abandoned = Abandoned(clock, 1)
    scheduler.watch(abandoned, 1)
    clock.now += 1
    assert scheduler.run_once() == 1
    del abandoned
    gc.collect()
    clock.now += 1
    assert scheduler.run_once() is None
    assert at == [101]
    assert len(scheduler._agenda) == 0


def test_what_ended_takes_no_room_until_it_would_have_been_due(clock: Clock, scheduler: HeartbeatScheduler) -> None:
    held = Beats(clock, 1000)
    scheduler.watch(held, 1000)
    for _ in range(10_000):
        ended = Beats(clock, 1000)
        scheduler.watch(ended, 1000)
        scheduler.unwatch(ended)
    assert len(scheduler._agenda) == 1
    assert len(scheduler._agenda._due) < 100
    clock.now += 1000
    assert scheduler.run_once() == 1000
    assert held.at == [1100]


def test_beats_go_on_when_a_thread_cannot_be_had(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(heartbeat, "RETRY_SECONDS", 0.01)
    start, refused = threading.Thread.start, threading.Event()

    def refuse_once(thread: threading.Thread) -> None:
        if thread.name == "sluicegate-beats" and not refused.is_set():
            refused.set()
            raise RuntimeError("can't start new thread")
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", refuse_once)
    scheduler, lease = HeartbeatScheduler(), Counted(object(), 1)
    scheduler.watch(lease, 0)
    assert lease.done.wait(DEADLINE_SECONDS)
    assert refused.is_set()


def test_a_child_forked_by_a_beat_beats_for_nobody(clock: Clock, scheduler: HeartbeatScheduler) -> None:
    reader, writer = os.pipe()
    parent = os.getpid()

    class Forking(Beats):
        child = 0

        def beat(self) -> float | None:
            self.child = os.fork()
            return None

    class Telling(Beats):
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
    with os.fdopen(reader) as told:
        assert told.read() == ""
    os.waitpid(forking.child, 0)
    assert behind.at == [100]


def test_the_thread_serves_a_lease_watched_later() -> None:
    scheduler, far, near = HeartbeatScheduler(), Counted(object(), 1), Counted(object(), 1)
    scheduler.watch(far, 3600)
    scheduler.watch(near, 0)
    assert near.done.wait(DEADLINE_SECONDS)
    assert not far.done.is_set()


def test_a_forked_child_has_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    mine = heartbeat.scheduler()
    assert heartbeat.scheduler() is mine
    monkeypatch.setattr(heartbeat, "_scheduler", mine)
    heartbeat._forget_after_fork()
    assert heartbeat.scheduler() is not mine
