"""The collector is off while many objects are made at once, and never for longer."""

from __future__ import annotations

import gc
import os
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from sluicegate import collector
from sluicegate.collector import paused


@pytest.fixture(autouse=True)
def collector_on() -> Iterator[None]:
    """Begin and end with the collector on, as Python does."""
    gc.enable()
    yield
    gc.enable()


def test_the_collector_is_off_within_the_block_and_on_after_it() -> None:
    with paused():
        assert not gc.isenabled()
    assert gc.isenabled()


def test_an_error_in_the_block_turns_it_on_again() -> None:
    with pytest.raises(KeyError), paused():
        raise KeyError
    assert gc.isenabled()


def test_a_program_that_turned_it_off_keeps_it_off() -> None:
    gc.disable()
    with paused(), paused():
        assert not gc.isenabled()
    assert not gc.isenabled()


def test_blocks_may_be_nested() -> None:
    with paused():
        with paused():
            assert not gc.isenabled()
        assert not gc.isenabled(), "the outer block has not ended"
    assert gc.isenabled()


def test_overlapping_threads_keep_it_off_for_no_longer_than_the_first_of_them() -> None:
    entered, leave = threading.Event(), threading.Event()

    def other() -> None:
        with paused():
            entered.set()
            assert leave.wait(30)

    thread = threading.Thread(target=other)
    with paused():
        thread.start()
        assert entered.wait(30)
    assert gc.isenabled(), "the block that turned it off has ended"
    leave.set()
    thread.join(30)
    assert gc.isenabled()


def test_many_threads_leave_it_on() -> None:
    def work() -> None:
        for _ in range(500):
            with paused():
                _ = [[] for _ in range(20)]

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert gc.isenabled()
    assert not collector._pausing


def test_an_interruption_on_the_way_into_the_block_turns_it_on_again(monkeypatch: pytest.MonkeyPatch) -> None:
    disable = gc.disable

    def interrupted() -> None:
        disable()
        raise KeyboardInterrupt

    monkeypatch.setattr(gc, "disable", interrupted)
    with pytest.raises(KeyboardInterrupt), paused():
        pytest.fail("the block began")
    assert gc.isenabled()


def test_an_interruption_on_the_way_out_turns_it_on_when_the_block_is_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(paused, "__exit__", interrupted)
        with pytest.raises(KeyboardInterrupt), paused():
            assert not gc.isenabled()
    assert gc.isenabled()


@pytest.mark.parametrize("forks_in_the_block", [False, True])
def test_a_child_continues_with_the_collector_on(forks_in_the_block: bool) -> None:
    entered, leave = threading.Event(), threading.Event()

    def other() -> None:
        with paused():
            entered.set()
            assert leave.wait(30)

    def child_has_it_on() -> bool:
        child = os.fork()
        if not child:
            os._exit(0 if gc.isenabled() else 1)
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0

    if forks_in_the_block:
        with paused():
            assert not child_has_it_on(), "the block continues in the child, and ends there"
        return
    thread = threading.Thread(target=other)
    thread.start()
    try:
        assert entered.wait(30)
        assert child_has_it_on(), "nothing in the child would turn it on"
        assert not gc.isenabled(), "the block continues in the parent"
    finally:
        leave.set()
        thread.join(30)
    assert gc.isenabled()
