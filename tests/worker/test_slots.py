"""Tests of the threads of a worker, without a queue."""

from __future__ import annotations

import threading

import pytest

from sluicegate.worker.slots import Slots


def test_a_slot_that_works_before_its_start_returns_knows_that_it_is_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """A busy machine may run a handler to its end before the thread that started it is scheduled again."""
    known: list[bool] = []
    start = threading.Thread.start

    def start_and_end(thread: threading.Thread) -> None:
        start(thread)
        thread.join(10)

    monkeypatch.setattr(threading.Thread, "start", start_and_end)
    slots = Slots(2, "worker", lambda mine: known.append(mine.runs_caller()), pytest.fail)
    slots.start()

    assert slots.wait(0)
    assert known == [True, True]
    assert not slots.runs_caller()


def test_a_thread_that_cannot_start_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """The system may refuse a further thread; those that run end as always."""
    start, started = threading.Thread.start, []

    def refuse_the_second(thread: threading.Thread) -> None:
        if started:
            raise RuntimeError("can't start new thread")
        started.append(thread)
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", refuse_the_second)
    slots = Slots(2, "worker", lambda _: None, pytest.fail)
    with pytest.raises(RuntimeError, match="new thread"):
        slots.start()

    assert slots.wait(10)
