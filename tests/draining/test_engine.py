"""A partition's work: chunks, retries and ends, on a real Redis."""

from __future__ import annotations

import os
import re
import time

import pytest
import redis

from sluicegate import Message, RedisMessageQueue
from sluicegate.draining.context import DrainContext
from sluicegate.errors import LeaseLostError, RedisUnavailableError
from sluicegate.lease import Lease
from tests.draining.helpers import (
    Killed,
    Numbers,
    Output,
    drain_here,
    leave_leases_open,
    watched,
    what_was_done,
)
from tests.support import state
from tests.support.waiting import wait_until

__all__ = ["leave_leases_open"]


def expire(queue: RedisMessageQueue, client: redis.Redis) -> None:
    """Let every open lease of a queue expire now."""
    for name in client.zrange(queue.key.leases, 0, -1):
        client.zadd(queue.key.leases, {name: 1})


def test_every_chunk_is_worked_on_and_acked_and_no_lease_is_left(
    queue: RedisMessageQueue, numbers: Numbers, output: Output, client: redis.Redis
) -> None:
    expected = numbers(25)

    summary = drain_here(queue, output.writer(), batch_size=10)

    assert what_was_done(summary) == {
        "partition": 0, "chunks": 3, "claimed": 25, "acked": 25, "returned": 0, "buried": 0, "ended": "empty",
    }  # fmt: skip
    assert (summary.failures, summary.replayed, summary.taken_over) == ((), 0, 0)
    assert output.numbers() == expected
    depth = queue.depth()
    assert (depth.ready, depth.in_flight, depth.leases, depth.delayed, depth.dead) == (0, 0, 0, 0, 0)
    assert state.counters(client, "orders")["acked"] == state.counters(client, "orders")["published"] == 25


def test_the_context_names_the_lease(queue: RedisMessageQueue, numbers: Numbers) -> None:
    numbers(4)
    seen: list[DrainContext] = []

    drain_here(
        queue, lambda batch, ctx: seen.append(ctx), partition=7, attempt=1, batch_size=2, run_id="dag/task/2013 ü"
    )

    assert [(ctx.lease_id, ctx.partition, ctx.chunk, ctx.run_id, ctx.attempt) for ctx in seen] == [
        ("dag/task/2013 ü/7/0", 7, 0, "dag/task/2013 ü", 1),
        ("dag/task/2013 ü/7/1", 7, 1, "dag/task/2013 ü", 1),
    ]
    assert len({ctx.lease_key for ctx in seen}) == len({ctx.opening for ctx in seen}) == 2
    assert all(re.fullmatch(r"[0-9a-f]{32}", ctx.lease_key) for ctx in seen)
    assert [ctx.lost for ctx in seen] == [False, False]


def test_a_paused_queue_ends_the_partition(queue: RedisMessageQueue, numbers: Numbers, client: redis.Redis) -> None:
    numbers(3)
    client.hset(queue.key.counters, "paused", "1")

    summary = drain_here(queue, lambda batch: None)

    assert (summary.ended, summary.claimed, queue.depth().pending) == ("paused", 0, 3)


def test_what_a_dead_drain_left_is_ready_and_comes_in_its_first_order(
    queue: RedisMessageQueue, numbers: Numbers, output: Output
) -> None:
    expected = numbers(40)
    for chunk in range(3):
        assert len(queue.claim(10, lease_id=f"dead/0/{chunk}", lease_seconds=0.05)) == 10
    wait_until(lambda: queue.depth().expired == 30, "the leases of the dead drain run out")
    assert (queue.depth().ready, queue.depth().pending) == (40, 10)

    summary = drain_here(queue, output.writer(), batch_size=10)

    assert (summary.acked, summary.ended) == (40, "empty")
    assert [n for call in output.calls() for n in call["numbers"]] == expected


# ------------------------------------------------------------------ a retry of the task


def test_a_retry_takes_over_the_open_lease_under_the_same_key(
    queue: RedisMessageQueue, numbers: Numbers, output: Output, client: redis.Redis, leave_leases_open: None
) -> None:
    expected = numbers(30)

    def die_in_the_second_chunk(batch: list[int], ctx: DrainContext) -> None:
        if ctx.chunk == 1 and ctx.attempt == 0:
            raise Killed

    with pytest.raises(Killed):
        drain_here(queue, output.writer(die_in_the_second_chunk), batch_size=10)
    summary = drain_here(queue, output.writer(die_in_the_second_chunk), batch_size=10, attempt=1)

    assert (summary.acked, summary.chunks, summary.replayed, summary.taken_over) == (30, 3, 1, 1)
    assert output.numbers() == expected
    first, second = (call for call in output.calls() if call["chunk"] == 1)
    assert first["key"] == second["key"]
    counters = state.counters(client, "orders")
    assert (counters["acked"], counters["taken_over"]) == (30, 1)


def test_output_stays_exact_when_a_chunk_was_halved_before_the_crash_and_succeeds_whole_after(
    queue: RedisMessageQueue, numbers: Numbers, output: Output, leave_leases_open: None
) -> None:
    expected = numbers(8)

    def fail_whole_then_die(batch: list[int], ctx: DrainContext) -> None:
        if ctx.attempt == 0 and len(batch) == 8:
            raise OSError("a moment without the network")
        if ctx.attempt == 0 and batch[0] == 4:
            raise Killed

    with pytest.raises(Killed):
        drain_here(queue, output.writer(fail_whole_then_die))
    assert output.numbers() == [0, 1, 2, 3]
    drain_here(queue, output.writer(fail_whole_then_die), attempt=1)

    assert output.numbers() == expected
    assert re.fullmatch(r"[0-9a-f]{32}", *output.lease_keys())


def test_output_stays_exact_when_a_chunk_succeeded_before_the_crash_and_is_halved_after(
    queue: RedisMessageQueue, numbers: Numbers, output: Output, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = numbers(8)

    def fail_whole_when_retried(batch: list[int], ctx: DrainContext) -> None:
        if ctx.attempt == 1 and len(batch) == 8:
            raise OSError("a moment without the network")

    def killed(*verdicts: object) -> None:
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(Lease, "settle", killed)
        with pytest.raises(Killed):
            drain_here(queue, output.writer(fail_whole_when_retried))
    assert output.numbers() == expected
    summary = drain_here(queue, output.writer(fail_whole_when_retried), attempt=1)

    assert summary.acked == 8
    assert output.numbers() == expected
    assert re.fullmatch(r"[0-9a-f]{32}", *output.lease_keys())


def test_a_second_run_under_the_same_id_does_nothing_and_tells_the_same(
    queue: RedisMessageQueue, numbers: Numbers, output: Output
) -> None:
    numbers(25)
    first = drain_here(queue, output.writer(), batch_size=10)
    calls = output.calls()
    numbers(5)

    second = drain_here(queue, output.writer(), batch_size=10)

    assert output.calls() == calls
    assert what_was_done(second) == what_was_done(first)
    assert (first.replayed, second.replayed) == (0, 3)
    assert queue.depth().pending == 5


def test_a_second_run_goes_on_with_what_the_first_gave_back(
    queue: RedisMessageQueue, numbers: Numbers, output: Output
) -> None:
    expected = numbers(10)
    broken = True

    def fail_while_broken(batch: list[int], ctx: DrainContext) -> None:
        if broken and 3 in batch:
            raise ValueError("three")

    first = drain_here(queue, output.writer(fail_while_broken))
    assert (first.acked, first.returned) == (9, 1)
    broken = False
    wait_until(lambda: queue.depth().due == 1, "the delay of the nack is over")
    second = drain_here(queue, output.writer(fail_while_broken))

    assert (second.acked, second.returned, second.replayed, second.failures) == (10, 1, 1, ())
    assert output.numbers() == expected


def test_failures_that_died_with_their_attempt_are_still_reported(queue: RedisMessageQueue, numbers: Numbers) -> None:
    numbers(10)

    def fail_on_three(batch: list[Message]) -> None:
        if any(message.json()["n"] == 3 for message in batch):
            raise ValueError("three")

    drain_here(queue, fail_on_three, call_id="one call")
    retried = drain_here(queue, fail_on_three, attempt=1, call_id="one call")

    assert [(failure.chunk, failure.messages, failure.buried) for failure in retried.failures] == [(0, 1, False)]
    assert "earlier attempt" in retried.failures[0].error


# ------------------------------------------------------------------ ends from outside


@pytest.mark.parametrize("end", [SystemExit, KeyboardInterrupt])
def test_a_process_that_is_told_to_end_releases_its_lease_at_once(
    queue: RedisMessageQueue, numbers: Numbers, end: type[BaseException], client: redis.Redis
) -> None:
    numbers(10)

    def process(batch: list[Message]) -> None:
        raise end

    with pytest.raises(end):
        drain_here(queue, process)

    depth = queue.depth()
    assert (depth.ready, depth.in_flight, depth.leases) == (10, 0, 0)
    assert state.counters(client, "orders")["released"] == 10
    assert [message.delivery_count for message in queue.claim(10)] == [1] * 10


def test_parts_that_were_done_before_the_end_stay_acked(
    queue: RedisMessageQueue, numbers: Numbers, output: Output, client: redis.Redis
) -> None:
    numbers(8)

    def fail_whole_then_exit(batch: list[int], ctx: DrainContext) -> None:
        if len(batch) == 8:
            raise ValueError("whole")
        if batch[0] == 4:
            raise SystemExit

    with pytest.raises(SystemExit):
        drain_here(queue, output.writer(fail_whole_then_exit))

    assert output.numbers() == [0, 1, 2, 3]
    assert [message.json()["n"] for message in queue.claim(10)] == [4, 5, 6, 7]
    assert state.counters(client, "orders")["acked"] == 4


def test_a_lease_that_is_lost_under_the_handler_propagates_and_its_messages_are_done_again(
    queue: RedisMessageQueue, numbers: Numbers, output: Output, client: redis.Redis
) -> None:
    expected = numbers(6)

    def lose_it(batch: list[int], ctx: DrainContext) -> None:
        if ctx.attempt == 0:
            expire(queue, client)
            queue.claim(6, lease_id="another").release()

    with pytest.raises(LeaseLostError, match="run/0/0"):
        drain_here(queue, output.writer(lose_it))
    assert (queue.depth().ready, queue.depth().in_flight) == (6, 0)
    lost_key = output.calls()[0]["key"]
    summary = drain_here(queue, output.writer(lose_it), attempt=1, batch_size=30)

    assert (summary.acked, state.counters(client, "orders")["acked"]) == (6, 6)
    redone = [call for call in output.calls() if call["attempt"] == 1]
    assert sorted(n for call in redone for n in call["numbers"]) == expected
    assert lost_key not in {call["key"] for call in redone}


def test_a_handler_that_raises_after_its_lease_was_lost_is_not_halved(
    queue: RedisMessageQueue, numbers: Numbers, client: redis.Redis
) -> None:
    numbers(6)
    calls: list[int] = []

    def process(batch: list[Message], ctx: DrainContext) -> None:
        calls.append(len(batch))
        expire(queue, client)
        queue.claim(1, lease_id="another").release()
        wait_until(lambda: ctx.lost, "the heartbeat learns of the loss")
        raise RuntimeError("the lease is not mine any more")

    with pytest.raises(LeaseLostError) as lost:
        drain_here(queue, process, lease_seconds=1)

    assert calls == [6]
    assert isinstance(lost.value.__cause__, RuntimeError)


def test_the_lease_lives_while_the_handler_works_and_no_heartbeat_outlives_the_task(
    queue: RedisMessageQueue, numbers: Numbers
) -> None:
    numbers(3)
    expired: list[int] = []

    def work_for_three_leases(batch: list[Message], ctx: DrainContext) -> None:
        end = time.monotonic() + 0.9
        while time.monotonic() < end:
            expired.append(queue.depth().expired)
        assert not ctx.lost

    summary = drain_here(queue, work_for_three_leases, lease_seconds=0.3)

    assert (summary.acked, summary.failures) == (3, ())
    assert set(expired) == {0}
    assert watched() == []


def test_no_heartbeat_outlives_a_task_that_failed(
    queue: RedisMessageQueue, numbers: Numbers, client: redis.Redis
) -> None:
    numbers(3)

    def lose_it(batch: list[Message]) -> None:
        assert watched() == ["run/0/0"]
        expire(queue, client)
        queue.claim(1, lease_id="another").release()

    with pytest.raises(LeaseLostError):
        drain_here(queue, lose_it)

    assert watched() == []


def test_an_unreachable_redis_propagates(tmp_path: os.PathLike[str]) -> None:
    nowhere = RedisMessageQueue("orders", url=f"unix://{tmp_path}/nobody.sock")

    with pytest.raises(RedisUnavailableError, match=r"nobody\.sock"):
        drain_here(nowhere, lambda batch: None)
