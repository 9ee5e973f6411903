"""The state of a worker's run: what it may claim, how long it lets handlers end, and what it counts."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest

from sluicegate.handling.report import End, WorkerReport
from sluicegate.handling.run import Run


@dataclass
class Clock:
    """A clock that a test moves."""

    now: float = 100.0

    def __call__(self) -> float:
        return self.now


@dataclass(eq=False)
class Leased:
    """A lease as a run knows it."""

    unsettled: list[int] = field(default_factory=lambda: [1])


@pytest.fixture
def clock() -> Clock:
    return Clock()


def make(clock: Clock, limit: int | None = None, stopping: list[bool] | None = None) -> Run[Leased]:
    return Run(1, lambda: bool(stopping), 30.0, limit, wait_seconds=5, clock=clock)


def test_a_bounded_run_claims_no_more_than_its_limit(clock: Clock) -> None:
    run = make(clock, limit=2)
    assert [run.may_claim() for _ in range(3)] == [True, True, False]
    assert (run.most_at_once(8), make(clock, limit=20).most_at_once(8), make(clock).most_at_once(8)) == (0, 8, 8)


def test_a_bounded_run_waits_for_its_first_message_and_ends_when_it_finds_none(clock: Clock) -> None:
    run = make(clock, limit=5)
    assert run.wait_seconds == 5
    run.hold(Leased())
    assert run.wait_seconds == 0
    run.finds_nothing()
    assert not run.may_claim()
    endless = make(clock)
    endless.hold(Leased())
    endless.finds_nothing()
    assert (endless.wait_seconds, endless.may_claim()) == (5, True)


def test_handlers_have_their_time_from_the_first_stop_on_unless_it_is_given_again(clock: Clock) -> None:
    run = make(clock)
    assert run.left_seconds() == 30
    run.stop()
    clock.now += 10
    run.stop()
    assert (run.left_seconds(), run.stopping(), run.may_claim()) == (20, True, False)
    run.stop(5)
    assert run.left_seconds() == 5
    clock.now += 6
    assert run.left_seconds() == -1


def test_a_queue_that_stops_starts_the_time_of_the_handlers(clock: Clock) -> None:
    stopping: list[bool] = []
    run = make(clock, stopping=stopping)
    assert run.may_claim()
    stopping.append(True)
    assert not run.may_claim()
    clock.now += 12
    assert run.left_seconds() == 18


def test_the_first_error_ends_a_run(clock: Clock) -> None:
    run = make(clock)
    first = LookupError()
    run.fail(first)
    run.fail(ValueError())
    assert (run.error, run.stopping()) == (first, True)


def test_each_delivery_counts_once_whatever_its_handler_does_after_it_was_given_up(clock: Clock) -> None:
    run, done, late, settled = make(clock), Leased(), Leased(), Leased([])
    for lease in (done, late, settled):
        run.hold(lease)
    run.end(done, End.HANDLED)
    assert run.is_clean
    assert run.give_up() == [late]
    run.end(late, End.HANDLED)
    run.end(settled, End.FAILED, buried=True)
    run.end(settled, End.FAILED)
    assert run.report == WorkerReport(handled=1, failed=1, released=1, buried=1)
    assert (run.report.claimed, run.is_clean) == (3, False)
