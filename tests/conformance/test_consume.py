"""`consume`: one message at a time, each acked in the call that claims the next."""

from __future__ import annotations

import asyncio
import logging
import os
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from typing import Any

import pytest
import redis

from sluicegate import QueueEvent, RedisMessageQueue
from sluicegate.asyncio import RedisMessageQueue as AsyncQueue
from sluicegate.core.call import Call
from sluicegate.core.transitions.ack_and_claim import OpenLease, ack_and_claim_operation
from sluicegate.core.transitions.claim import ClaimRequest
from sluicegate.errors import (
    AlreadySettledError,
    CleanupFailedError,
    ConfigurationError,
    RetryBudgetExhaustedError,
    WrongKeyTypeError,
)
from sluicegate.jobs import RedisJobQueue
from tests.support import state
from tests.support.core_calls import Core
from tests.support.flavours import Flavour, synchronous
from tests.support.servers import RedisServer
from tests.support.waiting import wait_until

MakeQueue = Callable[..., RedisMessageQueue]


class Boom(Exception):
    pass


def places(client: redis.Redis) -> dict[str, list[str]]:
    """Return the payloads that are somewhere, by state."""
    found = vars(state.contents(client, "orders"))
    return {
        where: [entry.rsplit(b"\x1f", 1)[1].decode() for entry in entries]
        for where, entries in found.items()
        if entries
    }


def recorded(queue: RedisMessageQueue, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return a list that the names of the scripts join as they are sent."""
    gateway, names = queue.session.runner.gateway, list[str]()
    execute = gateway.execute

    def record(call: Call[Any], **options: Any) -> Any:
        if call.script.name != "create_group":
            names.append(call.script.name)
        return execute(call, **options)

    monkeypatch.setattr(gateway, "execute", record)
    return names


def texts(queue: RedisMessageQueue, limit: int | None = None, **options: Any) -> list[str]:
    return [message.text() for message in queue.consume(limit, **{"wait_seconds": 0, **options})]


def test_every_message_comes_once_in_order_and_is_acked(queue: RedisMessageQueue, client: redis.Redis) -> None:
    queue.publish_many("abcdef")
    with queue.consume(wait_seconds=0) as messages:
        seen = [(message.text(), message.delivery_count, bool(message.id)) for message in messages]
    assert seen == [(text, 1, True) for text in "abcdef"]
    assert places(client) == {}
    assert queue.stats().acked == 6
    assert queue.depth().in_flight == 0


def test_a_step_is_one_call_unless_the_queue_is_empty(
    queue: RedisMessageQueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue.publish_many("abc")
    calls = recorded(queue, monkeypatch)
    assert texts(queue) == ["a", "b", "c"]
    if queue.session.keys.group:
        assert [name for name in calls if name != "claim"] == ["ack_whole"] * 3
    else:
        assert calls == ["ack_and_claim"] * 4 + ["claim"]


def test_a_single_message_is_claimed_and_acked_in_two_small_calls(
    make_queue: MakeQueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue = make_queue(message_wait_interval_seconds=0)
    queue.publish_many("ab")
    calls = recorded(queue, monkeypatch)
    assert queue.process_message_callback(lambda _: None) is True
    with queue.process_message():
        pass
    assert queue.process_message_callback(lambda _: None) is False
    assert queue.process_message_callback(lambda _: None) is False
    if queue.session.keys.group:
        assert [name for name in calls if name != "claim"] == ["ack_whole"] * 2
    else:
        assert calls == ["ack_and_claim"] * 5 + ["claim"] * 2


def test_the_message_before_is_acked_when_the_next_one_is_claimed(queue: RedisMessageQueue) -> None:
    queue.publish_many("abc")
    with queue.consume(wait_seconds=0) as messages:
        held = [(queue.depth().in_flight, queue.stats().acked) for _ in messages]
    assert held == [(1, 0), (1, 1), (1, 2)]


def test_the_limit_ends_the_loop_and_leaves_the_rest(queue: RedisMessageQueue) -> None:
    queue.publish_many("abc")
    assert texts(queue, 2) == ["a", "b"]
    assert (queue.depth().ready, queue.depth().in_flight, queue.stats().acked) == (1, 0, 2)


@pytest.mark.parametrize("arguments", [{"limit": 0}, {"wait_seconds": -1}, {"lease_seconds": 0}])
def test_arguments_that_cannot_work_are_refused(queue: RedisMessageQueue, arguments: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError):
        queue.consume(**arguments)


@pytest.mark.parametrize(("on_error", "where"), [("retry", "delayed"), ("bury", "dead"), ("discard", "")])
@pytest.mark.parametrize("position", [0, 1])
def test_an_exception_ends_the_message_in_hand_as_on_error_says(
    make_queue: MakeQueue, client: redis.Redis, on_error: str, where: str, position: int
) -> None:
    queue = make_queue(on_error=on_error)
    queue.publish_many("abc")

    def work() -> None:
        with queue.consume(wait_seconds=0) as messages:
            for number, _ in enumerate(messages):
                if number == position:
                    raise Boom

    with pytest.raises(Boom):
        work()
    found = places(client)
    assert found.get(where, []) == (["abc"[position]] if where else [])
    assert "in_flight" not in found
    assert queue.depth().ready == 2 - position


def test_an_interruption_releases_the_message_in_hand(queue: RedisMessageQueue) -> None:
    queue.publish_many("ab")

    def work() -> None:
        with queue.consume(wait_seconds=0) as messages:
            for _ in messages:
                raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        work()
    assert queue.depth().ready == 2
    assert [(message.text(), message.delivery_count) for message in queue.consume(wait_seconds=0)] == [
        ("a", 1),
        ("b", 1),
    ]


def test_leaving_the_block_acks_the_message_in_hand(queue: RedisMessageQueue) -> None:
    queue.publish_many("ab")
    with queue.consume(wait_seconds=0) as messages:
        for _ in messages:
            break
    assert (queue.stats().acked, queue.depth().ready, queue.depth().in_flight) == (1, 1, 0)


@pytest.mark.parametrize("position", [0, 1])
def test_leaving_a_bare_loop_releases_the_message_in_hand(queue: RedisMessageQueue, position: int) -> None:
    queue.publish_many("abc")
    for number, _ in enumerate(queue.consume(wait_seconds=0)):
        if number == position:
            break
    assert (queue.stats().acked, queue.depth().ready, queue.depth().in_flight) == (position, 3 - position, 0)
    with queue.claim() as lease:
        assert [(message.text(), message.delivery_count) for message in lease.messages] == [("abc"[position], 1)]


def test_an_exception_leaves_a_bare_loop_as_a_break_does(queue: RedisMessageQueue) -> None:
    queue.publish_many("ab")

    def work() -> None:
        for _ in queue.consume(wait_seconds=0):
            raise Boom

    with suppress(Boom):
        work()
    assert (queue.stats().acked, queue.depth().ready, queue.depth().in_flight) == (0, 2, 0)


def test_closing_the_loop_releases_the_message_in_hand_and_ends_it(queue: RedisMessageQueue) -> None:
    queue.publish_many("ab")
    messages = queue.consume(wait_seconds=0)
    assert next(messages).text() == "a"
    messages.close()
    assert queue.depth().ready == 2
    assert list(messages) == []


def test_verdicts_for_the_message_in_hand(queue: RedisMessageQueue, client: redis.Redis) -> None:
    queue.publish_many("abcde")
    with queue.consume(5, wait_seconds=0) as messages:
        seen = []
        for message in messages:
            seen.append(message.text())
            if len(seen) == 1:
                messages.nack(delay_seconds=1000, error=Boom("why"))
            elif len(seen) == 2:
                messages.bury(error=Boom("bad"), reason="hopeless")
            elif len(seen) == 3:
                messages.release()
            elif len(seen) == 4:
                messages.ack()
    assert seen == ["a", "b", "c", "c", "d"]
    found = places(client)
    assert (found["delayed"], found["dead"]) == (["a"], ["b"])
    (letter,) = queue.peek(state="dead")
    assert (letter.reason, letter.error_type, letter.error) == ("hopeless", "Boom", "bad")
    assert queue.depth().in_flight == 0
    assert (queue.stats().acked, queue.depth().ready) == (2, 1)


def test_a_message_has_one_verdict(queue: RedisMessageQueue) -> None:
    queue.publish_many("ab")
    with queue.consume(wait_seconds=0) as messages:
        with pytest.raises(AlreadySettledError, match="no current message"):
            messages.nack()
        next(messages)
        messages.nack(delay_seconds=1000)
        with pytest.raises(AlreadySettledError, match="'nack'"):
            messages.bury()
        next(messages)
        assert next(messages, None) is None
        with pytest.raises(AlreadySettledError, match="no current message"):
            messages.ack()
    assert (queue.stats().acked, queue.depth().delayed) == (1, 1)


@pytest.mark.parametrize("position", [0, 1])
def test_a_lost_lease_is_logged_and_the_loop_continues(
    queue: RedisMessageQueue, client: redis.Redis, position: int, caplog: pytest.LogCaptureFixture
) -> None:
    queue.publish_many("abc")
    other = synchronous(queue, client)
    with queue.consume(wait_seconds=0) as messages, caplog.at_level(logging.WARNING, "sluicegate"):
        for number in range(3):
            message = next(messages)
            assert message.text() == "abc"[number]
            if number == position:
                state.expire(client, "orders", group=queue.session.keys.group)
                thief = other.claim(heartbeat=False)
                assert [lost.text() for lost in thief.messages] == ["abc"[position]]
    assert "is no longer held" in caplog.text
    assert (queue.stats().acked, queue.depth().in_flight) == (2, 1)
    thief.ack()
    assert places(client) == {}
    other.close()


def test_a_history_has_what_a_loop_acked(make_queue: MakeQueue) -> None:
    queue = make_queue(enable_completed_queue=True)
    queue.publish_many("abc")
    assert texts(queue) == ["a", "b", "c"]
    assert sorted(done.message.text() for done in queue.peek(state="completed")) == ["a", "b", "c"]


def test_a_key_is_free_once_a_loop_has_acked_its_message(make_queue: MakeQueue) -> None:
    queue = make_queue(deduplication_policy="until_acked", get_deduplication_key=str)
    queue.publish_many("abc")
    queue.claim().nack()
    assert texts(queue) == ["a", "b", "c"]
    if not queue.session.keys.group:  # a stream's messages wait for its other groups
        assert queue.publish_many("abc").accepted == 3


def test_messages_that_come_back_keep_their_place(queue: RedisMessageQueue, client: redis.Redis) -> None:
    queue.publish_many("abcd")
    queue.claim(2, heartbeat=False)
    seen = []
    for message in queue.consume(wait_seconds=0):
        seen.append(message.text())
        if message.text() == "c":
            state.expire(client, "orders", group=queue.session.keys.group)  # the lease of "c", too
    assert seen == ["c", "a", "b", "d"]
    assert places(client) == {}


def test_messages_of_a_batch_are_counted(make_queue: MakeQueue) -> None:
    queue = make_queue()
    if queue.session.keys.group:
        queue.publish_many("abc")
        assert texts(queue) == ["a", "b", "c"]
        return
    queue.publish("first")
    batch = queue.batch("ab", batch_id="day")
    queue.publish("last")
    assert texts(queue) == ["first", "a", "b", "last"]
    assert batch.status().done == 2


def test_at_most_once_acks_before_the_message_is_yielded(make_queue: MakeQueue) -> None:
    queue = make_queue(visibility_timeout_seconds=None, max_delivery_count=None)
    queue.publish_many("ab")
    with queue.consume(wait_seconds=0) as messages:
        assert [(message.text(), queue.depth().in_flight) for message in messages] == [("a", 0), ("b", 0)]
    assert queue.stats().acked == 2


def test_a_paused_queue_gives_nothing_and_keeps_the_message_in_hand(queue: RedisMessageQueue) -> None:
    queue.publish_many("ab")
    with queue.consume(wait_seconds=0) as messages:
        next(messages)
        queue.pause()
        assert next(messages, None) is None
    assert (queue.stats().acked, queue.depth().pending) == (1, 1)


def test_a_heartbeat_keeps_messages_that_take_long(queue: RedisMessageQueue, client: redis.Redis) -> None:
    queue.publish_many("abc")

    def deadline() -> float:
        return max(score for _, score in client.zrange(queue.session.keys.leases, 0, -1, withscores=True))

    with queue.consume(lease_seconds=0.9, wait_seconds=0) as messages:
        next(messages)
        for _ in range(2):  # the ack of a message that had heartbeats, and those of the next one
            next(messages)
            first = deadline()
            wait_until(lambda: deadline() > first, "a beat extends the lease")  # noqa: B023
    assert queue.stats().acked == 3
    assert queue.depth().in_flight == 0


def test_another_thread_can_shut_the_queue_down(make_queue: MakeQueue) -> None:
    queue = make_queue()
    queue.publish_many("ab")
    in_hand, go = threading.Event(), threading.Event()
    seen: list[str] = []

    def work() -> None:
        for message in queue.consume():
            seen.append(message.text())
            in_hand.set()
            go.wait(30)

    thread = threading.Thread(target=work)
    thread.start()
    in_hand.wait(30)
    assert queue.shutdown(0.05) is True
    go.set()
    thread.join(30)
    assert not thread.is_alive()
    assert seen == ["a"]
    assert (queue.depth().ready, queue.stats().acked) == (2, 0)


def test_a_loop_that_is_shut_down_while_it_waits_ends(make_queue: MakeQueue) -> None:
    queue = make_queue()
    queue.publish("a")
    seen: list[str] = []
    thread = threading.Thread(target=lambda: seen.extend(message.text() for message in queue.consume()))
    thread.start()
    wait_until(lambda: queue.stats().acked == 1, "the message is acked before the wait")
    queue.shutdown(0)
    thread.join(30)
    assert not thread.is_alive()
    assert seen == ["a"]


def test_closing_the_queue_in_the_loop_releases_the_message_in_hand(make_queue: MakeQueue, client: redis.Redis) -> None:
    queue = make_queue()
    queue.publish_many("abc")
    seen = []
    for message in queue.consume(wait_seconds=0):
        seen.append(message.text())
        if len(seen) == 2:
            queue.close()
    assert seen == ["a", "b"]
    assert "in_flight" not in places(client)
    with synchronous(queue, client) as other:
        assert (other.depth().ready, other.stats().acked) == (2, 1)


def test_events_are_those_of_process_message(make_queue: MakeQueue) -> None:
    by_loop: list[QueueEvent] = []
    by_block: list[QueueEvent] = []
    queue = make_queue(on_event=by_loop.append)
    queue.publish_many("ab")
    by_loop.clear()
    assert texts(queue) == ["a", "b"]
    other = make_queue(on_event=by_block.append, message_wait_interval_seconds=0)
    other.publish_many("ab")
    by_block.clear()
    for _ in range(3):
        with other.process_message():
            pass
    assert [(e.operation, e.outcome, e.count) for e in by_loop] == [(e.operation, e.outcome, e.count) for e in by_block]
    assert len(by_loop) == 5


@pytest.fixture
def lost(queue: RedisMessageQueue, client: redis.Redis, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return a list of scripts whose next execution is not answered; each name in it counts for one execution."""
    gateway, names, other = queue.session.runner.gateway, list[str](), synchronous(queue, client)
    execute = gateway.execute

    def losing(call: Call[Any], **options: Any) -> Any:
        if call.script.name not in names:
            return execute(call, **options)
        names.remove(call.script.name)
        other.session.runner.gateway.execute(call)
        raise RetryBudgetExhaustedError("no answer")

    monkeypatch.setattr(gateway, "execute", losing)
    return names


def test_a_step_without_an_answer_is_taken_again_and_loses_nothing(
    queue: RedisMessageQueue, client: redis.Redis, lost: list[str]
) -> None:
    queue.publish_many("abc")
    with queue.consume(wait_seconds=0) as messages:
        assert next(messages).text() == "a"
        lost += ["ack_and_claim", "ack_whole"]
        with pytest.raises(CleanupFailedError, match="could not be acked"):
            next(messages)
        lost.clear()
        assert [message.text() for message in messages] == ["b", "c"]
    assert (queue.stats().acked, queue.depth().in_flight) == (3, 0)
    assert places(client) == {}


def test_a_first_step_without_an_answer_is_taken_again_under_the_same_lease(
    queue: RedisMessageQueue, lost: list[str]
) -> None:
    queue.publish_many("ab")
    messages = queue.consume(wait_seconds=0)
    if queue.session.keys.group:
        queue.claim(heartbeat=False).release()  # makes the group
    lost += ["ack_and_claim", "claim"]
    with pytest.raises(RetryBudgetExhaustedError):
        next(messages)
    lost.clear()
    assert [message.text() for message in messages] == ["a", "b"]
    assert queue.depth().in_flight == 0


def test_a_block_that_ends_with_an_unanswered_ack_gives_no_other_verdict(
    queue: RedisMessageQueue, lost: list[str]
) -> None:
    queue.publish_many("ab")

    def work() -> None:
        with queue.consume(wait_seconds=0) as messages:
            for _ in messages:
                lost.extend(["ack_and_claim", "ack_whole"])

    with pytest.raises(CleanupFailedError):
        work()
    assert (queue.stats().acked, queue.depth().delayed, queue.depth().returned) == (1, 0, 0)


def test_process_message_reports_an_ack_without_an_answer(queue: RedisMessageQueue, lost: list[str]) -> None:
    queue.publish("a")
    with pytest.raises(CleanupFailedError, match="could not be acked"), queue.process_message():
        lost.extend(["ack_and_claim", "ack_whole"])
    lost.clear()
    assert queue.stats().acked == 1
    queue.publish("b")
    with queue.process_message() as payload:
        assert payload in ("b", b"b")
    assert (queue.stats().acked, queue.depth().in_flight) == (2, 0)


def test_a_key_of_another_type_does_not_keep_a_message_from_its_ack(
    queue: RedisMessageQueue, client: redis.Redis
) -> None:
    queue.publish_many("ab")
    with queue.consume(wait_seconds=0) as messages:
        next(messages)
        client.set(queue.session.keys.delayed, "not ours")
        with pytest.raises(WrongKeyTypeError):
            next(messages)
        client.delete(queue.session.keys.delayed)
    assert (queue.stats().acked, queue.depth().ready, queue.depth().in_flight) == (1, 1, 0)


def test_threads_share_a_queue_and_each_message_is_handled_once(make_queue: MakeQueue, client: redis.Redis) -> None:
    queue = make_queue()
    queue.publish_many(f"{number:03}" for number in range(120))
    seen: list[str] = []

    def work(way: int) -> None:
        if way:
            seen.extend(texts(queue))
        while way == 0 and queue.process_message_callback(seen.append):
            pass

    queue.session.config = replace(queue.session.config, message_wait_interval_seconds=0)
    threads = [threading.Thread(target=work, args=(way,)) for way in (0, 1, 0, 1)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert sorted(payload if isinstance(payload, str) else payload.decode() for payload in seen) == [
        f"{number:03}" for number in range(120)
    ]
    assert (queue.stats().acked, queue.depth().in_flight, places(client)) == (120, 0, {})


def test_a_message_in_a_block_is_released_when_another_thread_shuts_the_queue_down(make_queue: MakeQueue) -> None:
    queue = make_queue()
    queue.publish("a")
    in_hand, go = threading.Event(), threading.Event()

    def work() -> None:
        with queue.process_message():
            in_hand.set()
            go.wait(30)

    thread = threading.Thread(target=work)
    thread.start()
    in_hand.wait(30)
    assert queue.shutdown(0.05) is True
    assert (queue.depth().ready, queue.depth().in_flight) == (1, 0)
    go.set()
    thread.join(30)
    assert (queue.stats().acked, queue.depth().ready) == (0, 1)


def test_a_child_process_continues_the_loop_with_claims_of_its_own(
    make_queue: MakeQueue, flavour: Flavour, client: redis.Redis
) -> None:
    queue = make_queue()
    if flavour.asyncio:  # no event loop survives a fork
        return
    queue.publish_many("abcd")
    messages = queue.consume(wait_seconds=0)
    next(messages)
    pid = os.fork()
    if pid == 0:
        with suppress(BaseException):
            os._exit(len(list(messages)))  # it acks the message that both hold
        os._exit(99)
    _, status = os.waitpid(pid, 0)
    assert os.waitstatus_to_exitcode(status) == 3
    assert list(messages) == []
    assert (queue.stats().acked, places(client)) == (4, {})


def test_a_task_that_is_cancelled_in_a_bare_loop_releases_its_message(server: RedisServer, client: redis.Redis) -> None:
    async def main() -> int:
        async with AsyncQueue("orders", url=server.url) as queue:
            await queue.publish_many("abc")
            in_hand = asyncio.Event()

            async def work() -> None:
                async for message in queue.consume():
                    if message.text() == "b":
                        in_hand.set()
                        await asyncio.Event().wait()

            task = asyncio.create_task(work())
            await asyncio.wait_for(in_hand.wait(), 30)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            await asyncio.wait_for(until_ready(queue, 2), 30)
            return (await queue.stats()).acked

    assert asyncio.run(main()) == 1


async def until_ready(queue: AsyncQueue, count: int) -> None:
    while (await queue.depth()).ready != count:
        await asyncio.sleep(0.01)


def drive(operation: Any, step: Any, core: Core) -> None:
    while True:
        step = operation.send(core.do(step))


def test_an_interrupted_step_is_acked_and_its_claim_undone(bare_client: redis.Redis) -> None:
    core = Core(bare_client)
    core.do(core.publish("b", *"abc"))
    name = core.keys.lease_name("m")
    first = core.do(core.ack_and_claim("m"))
    last = OpenLease(name, b"m:" + first.opening, 0.0, first.entry)
    operation = ack_and_claim_operation(
        core.keys, core.rules, ClaimRequest(b"n", b"n", 1, 60, 3600), last, claims=True, clock=lambda: 1.0
    )
    core.do(next(operation))  # executed, and interrupted before the answer
    step: Any = operation.throw(KeyboardInterrupt())
    with pytest.raises(KeyboardInterrupt):
        drive(operation, step, core)
    assert (core.do(core.depth()).in_flight, core.do(core.depth()).ready) == (0, 2)
    assert state.counters(bare_client, "orders")["acked"] == 1
    assert core.do(core.ack_and_claim("n")).how == "slow", "an execution that comes late opens nothing"


def test_a_queue_of_jobs_has_the_same_loop(server: RedisServer, client: redis.Redis) -> None:
    with RedisJobQueue("orders", url=server.url) as queue:
        done, failed = queue.enqueue({"n": 1}), queue.enqueue({"n": 2})
        with queue.consume(wait_seconds=0) as messages:
            for message in messages:
                if message.json()["n"] == 2:
                    messages.bury(error=Boom("no"))
        assert (queue.get(done).status, queue.get(failed).status) == ("completed", "failed")
