"""What a drain reports while the driver waits; a report can neither fail nor slow the drain."""

from __future__ import annotations

import io
import logging
import sys
import threading
from dataclasses import replace
from typing import Any

import pytest

from sluicegate import RedisMessageQueue
from sluicegate.config import QueueSpec
from sluicegate.draining import progress as _progress
from sluicegate.draining.progress import DrainProgress, Watch, watching
from tests.draining.helpers import Numbers
from tests.support.waiting import wait_until


class Face:
    def __init__(self) -> None:
        self.seen: list[DrainProgress] = []
        self.closed = False

    def show(self, progress: DrainProgress) -> None:
        self.seen.append(progress)

    def close(self) -> None:
        self.closed = True


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def looks_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_progress, "_LOOK_SECONDS", 0.01)


def at(seconds: float, **more: Any) -> DrainProgress:
    values: dict[str, Any] = {"acked": 300, "failed": 2, "ready": 600, "in_flight": 100}
    return DrainProgress("run", "orders", seconds, **{**values, **more})


def nowhere() -> QueueSpec:
    return QueueSpec("orders", "redis://127.0.0.1:1/0", {})


def test_it_counts_from_where_the_drain_began(queue: RedisMessageQueue, numbers: Numbers) -> None:
    numbers(100)
    queue.claim(10).ack()
    face, clock = Face(), Clock()
    watch = Watch(queue.spec(), "run", face, clock)

    watch.run_once()
    queue.claim(30).ack()
    lease = queue.claim(20)
    lease.nack(lease.messages[:5])
    clock.now += 10
    watch.run_once()

    (seen,) = face.seen  # the first look only notes where the counts began
    assert seen == DrainProgress("run", "orders", 10.0, acked=30, failed=5, ready=45, in_flight=15)
    assert (seen.per_second, seen.left_seconds, seen.part) == (3.0, 20.0, 30 / 90)


def test_messages_of_an_expired_lease_are_ready_and_not_in_flight_too(
    queue: RedisMessageQueue, numbers: Numbers
) -> None:
    numbers(10)
    face, clock = Face(), Clock()
    watch = Watch(queue.spec(), "run", face, clock)
    watch.run_once()
    lost = queue.claim(4, lease_seconds=0.1)
    kept = queue.claim(3)
    wait_until(lambda: queue.depth().expired == 4, "the lease has expired")
    clock.now += 1

    seen = watch.run_once()

    assert (seen.ready, seen.in_flight) == (7, 3)
    assert (len(lost), len(kept)) == (4, 3)


def test_before_anything_is_acked_nothing_is_foretold() -> None:
    assert (at(5, acked=0).left_seconds, at(5, acked=0).per_second) == (None, 0.0)
    assert at(0).per_second == 0.0
    assert at(5, acked=0, ready=0, in_flight=0).part == 1.0


def test_a_line_is_logged_every_ten_seconds(caplog: pytest.LogCaptureFixture) -> None:
    lines = _progress._Lines()
    with caplog.at_level(logging.INFO, "sluicegate"):
        for second in range(1, 36):
            lines.show(at(float(second)))

    assert [record.getMessage() for record in caplog.records] == [
        f"drain 'run' of queue 'orders': 300 messages acked in {seconds} s ({300 / seconds:.0f}/s), 2 failed, "
        f"600 ready, 100 in flight, about {700 * seconds / 300:.0f} s left"
        for seconds in (10, 20, 30)
    ]


def test_a_short_drain_is_not_told(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    screen = io.StringIO()
    monkeypatch.setattr(sys, "stderr", screen)
    bar, lines = _progress._Bar(forced=False), _progress._Lines()
    with caplog.at_level(logging.INFO, "sluicegate"):
        for second in (0.5, 1.5):
            bar.show(at(second))
            lines.show(at(second))
    bar.close()

    assert (screen.getvalue(), caplog.records) == ("", [])


def test_a_bar_shows_how_much_is_done(monkeypatch: pytest.MonkeyPatch) -> None:
    screen = io.StringIO()
    monkeypatch.setattr(sys, "stderr", screen)
    bar = _progress._Bar(forced=True)
    bar.show(at(2.0, acked=450, ready=500, in_flight=50))
    bar.close()

    shown = screen.getvalue()
    assert "drain orders" in shown
    assert "450/1000" in shown
    assert "225/s" in shown


@pytest.mark.parametrize(("on_terminal", "face"), [(True, "_Bar"), (False, "_Lines")])
def test_a_terminal_gets_a_bar_and_anything_else_lines(
    monkeypatch: pytest.MonkeyPatch, on_terminal: bool, face: str
) -> None:
    monkeypatch.setattr(sys, "stderr", type("Screen", (), {"isatty": lambda self: on_terminal})())

    assert type(_progress._display_for(None)).__name__ == face
    assert type(_progress._display_for(True)).__name__ == "_Bar"
    assert _progress._display_for(False) is None


def test_without_rich_there_are_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_progress, "find_spec", lambda name: None)
    monkeypatch.setattr(sys, "stderr", type("Screen", (), {"isatty": lambda self: True})())

    assert type(_progress._display_for(None)).__name__ == type(_progress._display_for(True)).__name__ == "_Lines"


def test_a_function_is_called_while_the_drain_runs_and_no_thread_is_left(
    queue: RedisMessageQueue, numbers: Numbers, looks_often: None
) -> None:
    numbers(50)
    seen: list[DrainProgress] = []

    with watching(queue.spec(), "run", seen.append):
        wait_until(lambda: len(seen) >= 3, "it was told some times")

    assert {(look.queue, look.run_id, look.ready) for look in seen} == {("orders", "run", 50)}
    assert "sluicegate-progress" not in [thread.name for thread in threading.enumerate()]


def test_a_function_that_fails_is_named_once_and_stops_nothing(
    queue: RedisMessageQueue, looks_often: None, caplog: pytest.LogCaptureFixture
) -> None:
    calls: list[int] = []

    def fail(progress: DrainProgress) -> None:
        calls.append(1)
        raise ValueError("my own fault")

    with watching(queue.spec(), "run", fail):
        wait_until(lambda: len(calls) >= 3, "it was told some times")

    assert [record.message for record in caplog.records if record.levelno >= logging.WARNING] == [
        "the progress function of a drain failed; the drain goes on"
    ]


def test_a_redis_that_the_driver_cannot_reach_fails_nothing_and_holds_nothing_up(looks_often: None) -> None:
    seen: list[DrainProgress] = []
    with watching(nowhere(), "run", seen.append):
        pass

    assert seen == []


def test_a_url_that_names_no_redis_fails_nothing(looks_often: None) -> None:
    with watching(replace(nowhere(), url="carrier-pigeon://loft"), "run", lambda progress: None):
        pass


def test_what_the_drain_raises_is_not_swallowed(queue: RedisMessageQueue, looks_often: None) -> None:
    with pytest.raises(ZeroDivisionError), watching(queue.spec(), "run", lambda progress: None):
        _ = 1 / 0
    assert "sluicegate-progress" not in [thread.name for thread in threading.enumerate()]


def test_it_waits_a_second_at_most_for_a_redis_that_does_not_answer(queue: RedisMessageQueue) -> None:
    watch = Watch(replace(queue.spec(), options={"retry_budget_seconds": 600}), "run", Face())

    assert watch._spec.options["retry_budget_seconds"] == 1.0


def test_what_is_shown_last_is_the_end(queue: RedisMessageQueue, numbers: Numbers, looks_often: None) -> None:
    seen: list[DrainProgress] = []

    with watching(queue.spec(), "run", seen.append):
        wait_until(lambda: bool(seen), "it is watched")
        numbers(5)
        queue.claim(5).ack()

    assert seen[-1].acked == 5


def test_a_stderr_that_cannot_be_asked_is_no_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    closed = io.StringIO()
    closed.close()

    for stderr in (closed, None, object()):
        monkeypatch.setattr(sys, "stderr", stderr)
        assert isinstance(_progress._display_for(None), _progress._Lines)
