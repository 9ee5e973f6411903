"""When a partition of a drain ends: an empty queue, a number of messages, a deadline."""

from __future__ import annotations

import threading
import time
from dataclasses import replace
from typing import Any

import pytest
import redis

from sluicegate import Message, RedisMessageQueue
from sluicegate.draining.summary import PartitionSummary
from tests.draining.helpers import (
    Killed,
    Numbers,
    Output,
    drain_here,
    engine_for,
    leave_leases_open,
    plan_for,
    what_was_done,
)
from tests.support import state
from tests.support.waiting import wait_until

__all__ = ["leave_leases_open"]


class Clock:
    """The time that a partition's deadline is held against, moved by the test."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._ahead = 0.0
        real = time.monotonic
        monkeypatch.setattr(time, "monotonic", lambda: real() + self._ahead)

    def advance(self, seconds: float) -> None:
        self._ahead += seconds


def in_ten_minutes() -> dict[str, float]:
    return {"deadline_seconds": 600, "deadline_at": time.time() + 600}


# ------------------------------------------------------------------ a number of messages


@pytest.mark.parametrize(("limit", "partitions"), [(10, 3), (7, 7), (2, 5), (100_000, 9), (1, 1)])
def test_the_shares_of_a_limit_make_the_limit_and_differ_by_one_at_most(limit: int, partitions: int) -> None:
    plan = plan_for(lambda batch: None, limit=limit, partitions=partitions)
    shares = [plan.quota(partition) for partition in range(partitions)]

    assert sum(share or 0 for share in shares) == limit
    assert max(share or 0 for share in shares) - min(share or 0 for share in shares) <= 1
    assert plan_for(lambda batch: None, partitions=partitions).quota(0) is None


def test_a_partition_claims_its_share_and_not_one_more(
    queue: RedisMessageQueue, numbers: Numbers, output: Output
) -> None:
    numbers(100)

    first = drain_here(queue, output.writer(), batch_size=10, limit=51, partitions=2)
    second = drain_here(queue, output.writer(), batch_size=10, limit=51, partitions=2, partition=1)

    assert [(part.ended, part.acked, part.chunks) for part in (first, second)] == [("limit", 26, 3), ("limit", 25, 3)]
    assert output.numbers() == list(range(51))
    assert (queue.depth().pending, queue.depth().leases) == (49, 0)


def test_a_limit_of_fewer_messages_than_partitions_leaves_some_without(
    queue: RedisMessageQueue, numbers: Numbers
) -> None:
    numbers(5)

    summary = drain_here(queue, lambda batch: None, limit=1, partitions=2, partition=1)

    assert (summary.ended, summary.claimed, queue.depth().pending) == ("limit", 0, 5)


def test_a_limit_ends_at_an_empty_queue_too(queue: RedisMessageQueue, numbers: Numbers) -> None:
    numbers(5)

    assert what_was_done(drain_here(queue, lambda batch: None, limit=10))["ended"] == "empty"


def test_a_second_run_under_a_limit_does_nothing_more_and_tells_the_same(
    queue: RedisMessageQueue, numbers: Numbers, output: Output
) -> None:
    numbers(100)
    first = drain_here(queue, output.writer(), batch_size=10, limit=25)
    calls = output.calls()

    second = drain_here(queue, output.writer(), batch_size=10, limit=25)

    assert output.calls() == calls
    assert what_was_done(second) == what_was_done(first)
    assert (second.replayed, second.ended, queue.depth().pending) == (3, "limit", 75)


def test_what_a_first_run_gave_back_is_within_the_limit_of_a_second(
    queue: RedisMessageQueue, numbers: Numbers, output: Output
) -> None:
    numbers(20)
    first = drain_here(queue, lambda batch, ctx: ctx.nack(batch[0], delay_seconds=0), limit=10)
    assert (first.acked, first.returned, first.ended) == (9, 1, "limit")

    second = drain_here(queue, output.writer(), limit=10)

    assert output.numbers() == [0]  # once delivered, it comes alone
    assert (second.acked, second.returned, second.ended) == (10, 1, "limit")


def test_what_an_attempt_gave_back_counts_for_its_retry(
    queue: RedisMessageQueue, numbers: Numbers, output: Output, leave_leases_open: None
) -> None:
    numbers(30)

    def process(batch: list[Message], ctx: Any) -> None:
        if ctx.attempt == 0 and ctx.chunk == 1:
            raise Killed
        if ctx.chunk == 0:
            ctx.nack(batch[:4], delay_seconds=0)

    options: dict[str, Any] = {"batch_size": 5, "limit": 12, "call_id": "one call"}
    with pytest.raises(Killed):
        drain_here(queue, process, **options)
    retried = drain_here(queue, process, attempt=1, **options)

    assert (retried.claimed, retried.acked, retried.returned, retried.ended) == (12, 8, 4, "limit")


# ------------------------------------------------------------------ a deadline


def test_a_waiting_drain_takes_what_arrives_and_ends_at_its_deadline(
    queue: RedisMessageQueue, numbers: Numbers, output: Output, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = Clock(monkeypatch)
    plan = plan_for(output.writer(), waits=True, **in_ten_minutes())
    done: list[PartitionSummary] = []
    thread = threading.Thread(target=lambda: done.append(engine_for(queue, plan, 0, 0).run()))
    thread.start()
    try:
        numbers(3)
        wait_until(lambda: len(output.numbers()) == 3, "what arrived is worked on")
        numbers(2)
        wait_until(lambda: len(output.numbers()) == 5, "what arrived later is worked on")
    finally:
        clock.advance(600)
        thread.join(20)

    (summary,) = done
    assert (summary.ended, summary.acked, queue.depth().pending) == ("deadline", 5, 0)


def test_a_waiting_drain_goes_on_behind_what_an_earlier_one_found_empty(
    queue: RedisMessageQueue, numbers: Numbers, output: Output, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert drain_here(queue, output.writer()).ended == "empty"
    numbers(3)
    clock = Clock(monkeypatch)
    drain_ = engine_for(queue, plan_for(output.writer(), waits=True, **in_ten_minutes()), 0, 0)
    steps = drain_.steps()
    next(steps)

    assert output.numbers() == [0, 1, 2]
    clock.advance(600)
    list(steps)
    assert (drain_.summary().ended, drain_.summary().acked) == ("deadline", 3)


def test_a_paused_queue_does_not_end_a_waiting_drain(
    queue: RedisMessageQueue, numbers: Numbers, output: Output, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = Clock(monkeypatch)
    queue.pause()
    numbers(3)
    drain_ = engine_for(queue, plan_for(output.writer(), waits=True, **in_ten_minutes()), 0, 0)
    steps = drain_.steps()
    next(steps)
    assert output.calls() == []
    queue.resume()
    wait_until(lambda: next(steps) is None and output.numbers() == [0, 1, 2], "it goes on")
    clock.advance(600)
    list(steps)

    assert (drain_.summary().ended, drain_.summary().acked) == ("deadline", 3)


def test_a_deadline_ends_a_drain_between_chunks_and_leaves_the_rest(
    queue: RedisMessageQueue, numbers: Numbers, monkeypatch: pytest.MonkeyPatch
) -> None:
    numbers(50)
    clock = Clock(monkeypatch)

    def process(batch: list[Message], ctx: Any) -> None:
        if ctx.chunk == 1:
            clock.advance(600)

    summary = drain_here(queue, process, batch_size=10, **in_ten_minutes())

    assert (summary.ended, summary.acked, queue.depth().pending, queue.depth().leases) == ("deadline", 20, 30, 0)


def test_a_retry_after_the_deadline_still_finishes_what_its_attempt_left_open(
    queue: RedisMessageQueue, numbers: Numbers, output: Output, leave_leases_open: None, client: redis.Redis
) -> None:
    numbers(50)

    def die_in_the_second_chunk(batch: list[int], ctx: Any) -> None:
        if ctx.chunk == 1 and ctx.attempt == 0:
            raise Killed

    plan = plan_for(output.writer(die_in_the_second_chunk), batch_size=10, **in_ten_minutes())
    with pytest.raises(Killed):
        engine_for(queue, plan, 0, 0).run()
    over = replace(plan, deadline_at=time.time() - 1)
    summary = engine_for(queue, over, 0, 1).run()

    assert (summary.ended, summary.acked, summary.replayed, summary.taken_over) == ("deadline", 20, 1, 1)
    assert output.numbers() == list(range(20))
    assert (queue.depth().pending, queue.depth().leases) == (30, 0)
    assert state.counters(client, "orders")["acked"] == 20


def test_a_clock_that_is_behind_the_drivers_prolongs_nothing(queue: RedisMessageQueue) -> None:
    plan = plan_for(lambda batch: None, waits=True, deadline_seconds=0.05, deadline_at=time.time() + 3600)

    assert engine_for(queue, plan, 0, 0).run().ended == "deadline"
