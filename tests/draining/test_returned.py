"""A drain does not claim again what it gave back, in whichever of its partitions and attempts; a later drain does."""

from __future__ import annotations

import itertools
import time
from typing import Any

import pytest
import redis

from sluicegate import LeaseState, Message, RedisGateway, RedisMessageQueue
from sluicegate.draining import lease_access
from sluicegate.draining.context import DrainContext
from sluicegate.errors import ConfigurationError
from tests.draining.helpers import Killed, Numbers, Output, drain_here, failing_on, leave_leases_open
from tests.support import state
from tests.support.waiting import wait_until

__all__ = ["leave_leases_open"]


def numbers_in(values: list[bytes]) -> list[int]:
    return sorted(Message(value).json()["n"] for value in values)


def note(queue: RedisMessageQueue, run: str, ids: list[str]) -> None:
    lease_access.remember_returned(queue, run, [name.encode() for name in ids], life_seconds=86_400)


def nack_at_once(*which: int) -> Any:
    def process(batch: list[Message], ctx: DrainContext) -> None:
        ctx.nack([message for message in batch if message.json()["n"] in which], delay_seconds=0)

    return process


def die_in_the_second_chunk(queue: RedisMessageQueue, *, delay_seconds: float, **options: Any) -> None:
    """Release the first five messages and die while working on the next five."""

    def process(batch: list[Message], ctx: DrainContext) -> None:
        if ctx.chunk == 1:
            raise Killed
        ctx.nack(batch, delay_seconds=delay_seconds)

    with pytest.raises(Killed):
        drain_here(queue, process, batch_size=5, **options)


def test_what_comes_back_at_once_is_passed_by_and_put_off_uncounted(
    queue: RedisMessageQueue, numbers: Numbers, client: redis.Redis
) -> None:
    numbers(20)

    summary = drain_here(queue, nack_at_once(0, 7, 13), batch_size=5)

    assert (summary.acked, summary.returned, summary.ended) == (17, 3, "empty")
    contents = state.contents(client, "orders")
    assert (numbers_in(contents.delayed), contents.returned, contents.pending) == ([0, 7, 13], [], [])
    assert {Message(value).delivery_count for value in contents.delayed} == {1}
    counters = state.counters(client, "orders")
    assert (counters["nacked"], counters.get("released", 0), counters["in_flight"]) == (3, 0, 0)
    due = [at / 1000 for _, at in client.zrange(queue.key.delayed, 0, -1, withscores=True)]
    assert max(due) - time.time() <= 31


def test_what_is_released_is_not_taken_again_either(queue: RedisMessageQueue, numbers: Numbers) -> None:
    numbers(6)

    summary = drain_here(queue, lambda batch: "release", batch_size=2)

    assert (summary.claimed, summary.returned, summary.chunks) == (6, 6, 3)
    assert queue.depth().delayed == 6


def test_another_partition_and_another_attempt_pass_it_by_too(
    queue: RedisMessageQueue, numbers: Numbers, output: Output, leave_leases_open: None
) -> None:
    numbers(10)
    die_in_the_second_chunk(queue, delay_seconds=0, call_id="one call")
    other = drain_here(queue, output.writer(), batch_size=5, partition=1, call_id="one call")
    retried = drain_here(queue, output.writer(), batch_size=5, attempt=1, call_id="one call")

    assert (other.claimed, other.ended) == (0, "empty")
    assert output.numbers() == [5, 6, 7, 8, 9]
    assert retried.acked == 5


def test_another_call_and_everybody_else_take_it(queue: RedisMessageQueue, numbers: Numbers, output: Output) -> None:
    numbers(10)
    drain_here(queue, nack_at_once(3, 4), batch_size=10, lease_seconds=0.5)
    wait_until(lambda: queue.depth().due == 2, "what was passed by is due")

    with queue.claim(1) as lease:
        assert lease.messages[0].json() == {"n": 3}
    drain_here(queue, output.writer())

    assert output.numbers() == [4]


def test_a_drain_waits_for_new_messages_beside_those_that_it_gave_back(
    queue: RedisMessageQueue, numbers: Numbers, output: Output
) -> None:
    numbers(4)
    seen: list[int] = []

    def process(batch: list[Message], ctx: DrainContext) -> None:
        seen.extend(message.json()["n"] for message in batch)
        ctx.nack(batch, delay_seconds=0)

    summary = drain_here(
        queue, process, lease_seconds=0.5, waits=True, deadline_seconds=2, deadline_at=time.time() + 2
    )  # in which the skipped messages become claimable several times

    assert (seen, summary.returned, summary.ended) == ([0, 1, 2, 3], 4, "deadline")


def test_ten_thousand_at_the_head_neither_end_a_drain_nor_hold_redis_up(
    queue: RedisMessageQueue, numbers: Numbers, client: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    count = 10_000
    numbers(count)
    lease = queue.claim(count)
    note(queue, "one call", [message.id for message in lease.messages])
    lease.nack()
    queue.publish_many({"n": count + n} for n in range(50))
    put_off, execute = [0], RedisGateway.execute

    def watched(self: RedisGateway, call: Any, **more: Any) -> Any:
        answer = execute(self, call, **more)
        put_off.append(client.zcard(queue.key.delayed))
        return answer

    monkeypatch.setattr(RedisGateway, "execute", watched)
    summary = drain_here(queue, lambda batch: None, call_id="one call")

    assert (summary.acked, summary.ended, put_off[-1]) == (50, "empty", count)
    steps = [after - before for before, after in itertools.pairwise(put_off)]
    assert max(steps) <= 2000  # messages in one script
    assert len(steps) <= 20


def test_messages_of_others_between_those_of_the_run_are_taken(
    queue: RedisMessageQueue, numbers: Numbers, output: Output, client: redis.Redis
) -> None:
    numbers(9)
    lease = queue.claim(9)
    note(queue, "one call", [message.id for message in lease.messages if message.json()["n"] % 3])
    lease.nack()

    summary = drain_here(queue, output.writer(), call_id="one call", batch_size=1000)

    assert (summary.acked, output.numbers()) == (3, [0, 3, 6])
    assert numbers_in(state.contents(client, "orders").delayed) == [1, 2, 4, 5, 7, 8]


def test_a_claim_without_a_run_takes_everything_and_sends_what_it_always_sent(
    queue: RedisMessageQueue, numbers: Numbers, client: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    numbers(3)
    lease = queue.claim(3)
    note(queue, "one call", [message.id for message in lease.messages])
    lease.nack()
    sent: list[Any] = []
    execute = queue.session.runner.gateway.execute
    monkeypatch.setattr(
        queue.session.runner.gateway, "execute", lambda call, **more: sent.append(call) or execute(call, **more)
    )

    assert len(queue.claim(100)) == 3

    (call,) = sent
    header = call.script.header  # its last key and argument are those of a run
    assert (len(call.keys), len(call.args)) == (len(header.keys) - 1, len(header.args) - 1)


def test_the_notes_of_a_call_end_by_themselves(queue: RedisMessageQueue, numbers: Numbers, client: redis.Redis) -> None:
    numbers(3)
    drain_here(queue, nack_at_once(1), call_id="one call")

    (key,) = client.keys("*:run:*")
    assert 86_000 < client.ttl(key) <= 86_400
    assert client.scard(key) == 2  # the id, and that the chunk gave something back


def test_a_drain_without_failures_leaves_no_notes(
    queue: RedisMessageQueue, numbers: Numbers, client: redis.Redis
) -> None:
    numbers(3)
    drain_here(queue, lambda batch: None)

    assert client.keys("*:run:*") == []


def test_an_empty_claim_that_passed_something_by_is_not_mistaken_for_a_full_queue(
    queue: RedisMessageQueue, numbers: Numbers
) -> None:
    numbers(1)
    lease = queue.claim(1)
    note(queue, "one call", [lease.messages[0].id])
    lease.nack()

    assert queue.claim(1, exclude_run="one call").state is LeaseState.EMPTY
    assert queue.claim(1, exclude_run="another call").state is LeaseState.EMPTY  # put off, for everybody
    assert (queue.depth().delayed, queue.depth().returned) == (1, 0)


def test_failures_of_an_attempt_that_gave_a_whole_chunk_back_and_died_are_still_reported(
    queue: RedisMessageQueue, numbers: Numbers, output: Output, leave_leases_open: None
) -> None:
    numbers(4)
    lives = True

    def process(batch: list[int], ctx: DrainContext) -> None:
        if ctx.chunk == 0:
            failing_on(0)(batch, ctx)
        elif lives:
            raise Killed

    with pytest.raises(Killed):
        drain_here(queue, output.writer(process), batch_size=1, call_id="one call")
    lives = False
    retried = drain_here(queue, output.writer(process), batch_size=1, attempt=1, call_id="one call")

    assert [failure.error_type for failure in retried.failures] == ["unknown"]
    assert output.numbers() == [1, 2, 3]


def test_a_later_call_does_not_report_the_failures_of_an_earlier_one(
    queue: RedisMessageQueue, numbers: Numbers, output: Output
) -> None:
    numbers(4)
    first = drain_here(queue, output.writer(failing_on(0)))
    assert len(first.failures) == 1

    second = drain_here(queue, output.writer(), attempt=1)

    assert (second.returned, second.replayed, second.failures) == (1, 1, ())


def test_a_second_call_takes_over_what_lies_open_behind_a_chunk_that_was_given_back_whole(
    queue: RedisMessageQueue, numbers: Numbers, output: Output, leave_leases_open: None
) -> None:
    numbers(10)
    die_in_the_second_chunk(queue, delay_seconds=500, lease_seconds=600)
    second = drain_here(queue, output.writer(), batch_size=5, lease_seconds=600)

    assert output.numbers() == [5, 6, 7, 8, 9]
    assert (second.acked, second.returned, second.taken_over, second.ended) == (5, 5, 1, "empty")


def test_what_was_released_is_not_taken_when_it_comes_back_after_being_put_off(
    queue: RedisMessageQueue, numbers: Numbers, client: redis.Redis
) -> None:
    numbers(4)
    seen: list[int] = []

    def process(batch: list[Message], ctx: DrainContext) -> None:
        seen.extend(message.json()["n"] for message in batch)
        ctx.release(batch)

    drain_here(queue, process, lease_seconds=0.3, waits=True, deadline_seconds=1.5, deadline_at=time.time() + 1.5)

    assert seen == [0, 1, 2, 3]
    contents = state.contents(client, "orders")
    assert contents.pending == []
    assert numbers_in([*contents.delayed, *contents.returned]) == [0, 1, 2, 3]


def test_whoever_waits_is_woken_when_a_message_is_put_off(
    queue: RedisMessageQueue, numbers: Numbers, client: redis.Redis
) -> None:
    numbers(1)
    lease = queue.claim(1)
    note(queue, "one call", [lease.messages[0].id])
    lease.nack()
    client.delete(queue.session.keys.wakeup)

    assert queue.claim(1, exclude_run="one call").state is LeaseState.EMPTY

    assert client.exists(queue.session.keys.wakeup)


@pytest.mark.parametrize("run", [5, b"run", ["run"]])
def test_a_run_is_named_by_text(queue: RedisMessageQueue, run: Any) -> None:
    with pytest.raises(ConfigurationError, match="exclude_run must be"):
        queue.claim(1, exclude_run=run)
