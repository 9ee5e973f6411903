"""Two attempts of one task at the same time, as speculation makes them."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import redis

from sluicegate import Message, RedisMessageQueue
from sluicegate.draining import engine
from sluicegate.errors import RedisMessageQueueError
from sluicegate.spark import DrainContext, PartitionSummary
from sluicegate.spark.draining import pickling, task
from sluicegate.spark.draining.speculation import with_speculation
from tests.draining.helpers import (
    Killed,
    Numbers,
    Output,
    engine_for,
    failing_on,
    leave_leases_open,
    plan_for,
    watched,
    what_was_done,
)
from tests.spark.test_task import partition_rows
from tests.support import state
from tests.support.servers import RedisServer

__all__ = ["leave_leases_open"]


@pytest.fixture(autouse=True)
def looks_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine, "_LOOK_SECONDS", 0.02)
    monkeypatch.setattr(task, "_KEEP_ALIVE_SECONDS", 0.02)


@contextmanager
def beside(work: Callable[[], Any]) -> Iterator[list[Any]]:
    done: list[Any] = []
    thread = threading.Thread(target=lambda: done.append(work()))
    thread.start()
    try:
        yield done
    finally:
        thread.join(30)
        assert not thread.is_alive()


def test_a_speculative_attempt_waits_for_the_chunk_in_hand_and_both_tell_the_same(
    queue: RedisMessageQueue, numbers: Numbers, output: Output, client: redis.Redis
) -> None:
    numbers(20)
    first_works, first_may_end = threading.Event(), threading.Event()

    def hold(batch: list[int], ctx: DrainContext) -> None:
        if ctx.attempt == 0 and ctx.chunk == 0:
            first_works.set()
            assert first_may_end.wait(30)

    plan = with_speculation(plan_for(output.writer(hold), batch_size=10), None)
    first, second = engine_for(queue, plan, 0, 0), engine_for(queue, plan, 0, 1)
    with beside(first.run) as done:
        assert first_works.wait(30)
        steps = second.steps()
        for _ in range(3):
            next(steps)  # it looks, and finds the chunk held
        assert [call["attempt"] for call in output.calls()] == [0]
        first_may_end.set()
        list(steps)

    reports = [done[0], second.summary()]
    assert [what_was_done(report) for report in reports] == [what_was_done(reports[0])] * 2
    assert [(report.acked, report.taken_over, report.failures) for report in reports] == [(20, 0, ())] * 2
    assert output.numbers() == list(range(20))
    assert len(output.calls()) == 2  # each chunk was worked on once
    counters = state.counters(client, "orders")
    assert (counters["acked"], counters.get("taken_over", 0)) == (20, 0)


def test_a_speculative_attempt_takes_over_once_the_other_was_silent_for_some_heartbeats(
    queue: RedisMessageQueue, numbers: Numbers, output: Output, client: redis.Redis, leave_leases_open: None
) -> None:
    numbers(10)

    def die(batch: list[int], ctx: DrainContext) -> None:
        if ctx.attempt == 0:
            raise Killed

    plan = with_speculation(plan_for(output.writer(die), lease_seconds=2), None)
    with pytest.raises(Killed):
        engine_for(queue, plan, 0, 0).run()
    died = time.monotonic()
    summary = engine_for(queue, plan, 0, 1).run()

    assert time.monotonic() - died > 1.5  # 3.5 heartbeats of a quarter of the lease
    assert (summary.acked, summary.taken_over) == (10, 1)
    assert state.counters(client, "orders")["taken_over"] == 1


@pytest.mark.parametrize("speculates", [False, True])
def test_a_queue_without_heartbeats_has_none_in_a_drain_and_a_speculative_attempt_waits_for_the_whole_lease(
    make_queue: Callable[..., RedisMessageQueue], server: RedisServer, numbers: Numbers, speculates: bool
) -> None:
    numbers(3)
    seen: list[list[str]] = []
    quiet = make_queue(url=server.url, heartbeat_interval_seconds=0)
    plan = plan_for(lambda batch: seen.append(watched()), lease_seconds=40)
    if speculates:
        plan = with_speculation(plan, heartbeat_interval_seconds=0)

    assert engine_for(quiet, plan, 0, 0).run().acked == 3
    assert seen == [[]]
    assert plan.take_over_after_seconds == (40 if speculates else 0)


def test_a_holder_that_beats_is_never_taken_over(
    queue: RedisMessageQueue, numbers: Numbers, output: Output, client: redis.Redis
) -> None:
    numbers(3)
    end = threading.Event()
    works = threading.Event()

    def hold(batch: list[int], ctx: DrainContext) -> None:
        works.set()
        assert end.wait(30)

    plan = with_speculation(plan_for(output.writer(hold), lease_seconds=2), None)
    second = engine_for(queue, plan, 0, 1)
    with beside(engine_for(queue, plan, 0, 0).run) as done:
        assert works.wait(30)
        steps, until = second.steps(), time.monotonic() + 2.5  # longer than the lease lives by itself
        while time.monotonic() < until:
            next(steps)
        end.set()
        list(steps)

    assert (done[0].acked, second.summary().acked, len(output.calls())) == (3, 3, 1)
    assert state.counters(client, "orders").get("taken_over", 0) == 0


def test_both_of_a_pair_report_the_failures_whichever_of_them_met_them(
    queue: RedisMessageQueue, numbers: Numbers, output: Output
) -> None:
    numbers(10)
    plan = with_speculation(plan_for(output.writer(failing_on(3))), None)

    second = engine_for(queue, plan, 0, 1).run()
    first = engine_for(queue, plan, 0, 0).run()

    assert [failure.error_type for failure in second.failures] == ["ValueError"]
    assert [(failure.error_type, failure.messages) for failure in first.failures] == [("unknown", 1)]


def test_without_speculation_a_retry_takes_over_at_once(
    queue: RedisMessageQueue, numbers: Numbers, output: Output, leave_leases_open: None
) -> None:
    numbers(3)

    def die(batch: list[int], ctx: DrainContext) -> None:
        if ctx.attempt == 0:
            raise Killed

    plan = plan_for(output.writer(die), lease_seconds=600)
    with pytest.raises(Killed):
        engine_for(queue, plan, 0, 0).run()
    begun = time.monotonic()
    summary = engine_for(queue, plan, 0, 1).run()

    assert (summary.taken_over, summary.retries) == (1, 1)
    assert time.monotonic() - begun < 5


def test_a_lease_that_somebody_else_keeps_taking_fails_the_task_without_speculation(
    queue: RedisMessageQueue, numbers: Numbers
) -> None:
    numbers(3)
    drain = engine_for(queue, plan_for(lambda batch: None, take_over_after_seconds=1000), 0, 0)
    claimed = queue.claim(1, lease_id="run/0/0")

    with pytest.raises(RedisMessageQueueError, match="another drain use this run id"):
        drain.run()
    claimed.release()


def test_a_worker_shows_that_it_lives_between_chunks_and_spark_can_tell_that_from_a_report(
    queue: RedisMessageQueue, numbers: Numbers
) -> None:
    numbers(4)

    def slow(batch: list[Message]) -> None:
        threading.Event().wait(0.03)

    answers = [
        batch.column("report")[0].as_py()
        for batch in task.run(queue.spec().to_json(), pickling.dumps(plan_for(slow, batch_size=1)), partition_rows(0))
    ]

    *signs, report = answers
    assert len(signs) == 4
    assert all(len(sign) >= 65_536 and sign.isspace() for sign in signs)
    assert report.startswith("{")
    assert task.is_report() == "report NOT LIKE ' %'"


def test_a_summary_tells_bytes_and_retries(queue: RedisMessageQueue, numbers: Numbers) -> None:
    numbers(4)
    stored = sum(message.size for message in queue.peek(4))

    summary: PartitionSummary = engine_for(queue, plan_for(lambda batch: None), 0, 2).run()

    assert (summary.bytes, summary.retries, summary.taken_over) == (stored, 2, 0)


def test_a_chunk_that_the_other_gave_back_whole_is_not_opened_anew_by_the_one_that_waited(
    queue: RedisMessageQueue, numbers: Numbers, output: Output
) -> None:
    numbers(6)
    works, may_fail, in_second, may_go_on = (threading.Event() for _ in range(4))

    def process(batch: list[int], ctx: DrainContext) -> None:
        if ctx.attempt == 0 and ctx.chunk == 0:
            works.set()
            assert may_fail.wait(30)
        if ctx.attempt == 0 and ctx.chunk == 1:
            in_second.set()
            assert may_go_on.wait(30)
        failing_on(0)(batch, ctx)

    plan = with_speculation(plan_for(output.writer(process), batch_size=1), None)
    first, second = engine_for(queue, plan, 0, 0), engine_for(queue, plan, 0, 1)
    with beside(first.run) as done:
        assert works.wait(30)
        steps = second.steps()
        next(steps)  # it finds the first chunk held
        may_fail.set()
        assert in_second.wait(30)
        for _ in range(3):
            next(steps)  # and then the second
        may_go_on.set()
        list(steps)

    reports = [done[0], second.summary()]
    assert [what_was_done(report) for report in reports] == [what_was_done(reports[0])] * 2
    assert [len(report.failures) for report in reports] == [1, 1]
    assert output.numbers() == [1, 2, 3, 4, 5]
