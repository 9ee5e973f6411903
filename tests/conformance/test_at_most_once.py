"""At most once: a message is acked before it is handled, and recorded as what became of it afterwards."""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Callable
from typing import Any

import pytest
import redis

from sluicegate import QueueEvent, RedisMessageQueue
from sluicegate.core.transitions.conclude import Conclusion, conclude_call, conclude_operation
from tests.conformance.driven import Driven
from tests.support import state
from tests.support.core_calls import Core, verdict

MakeQueue = Callable[..., RedisMessageQueue]
HISTORIES: dict[str, Any] = {"enable_completed_queue": True, "enable_failed_queue": True}


class Boom(Exception):
    pass


@pytest.fixture
def make(make_queue: MakeQueue) -> MakeQueue:
    def made(**options: Any) -> RedisMessageQueue:
        once = {"visibility_timeout_seconds": None, "max_delivery_count": None, "message_wait_interval_seconds": 0}
        return make_queue(**once, **options)

    return made


def histories(client: redis.Redis) -> tuple[list[list[str]], list[list[str]]]:
    return state.history(client, "orders", "completed"), state.history(client, "orders", "failed")


def totals(queue: RedisMessageQueue) -> tuple[int, int, int]:
    stats = queue.stats()
    return stats.acked, stats.completed, stats.failed


def records_of_acks(client: redis.Redis) -> list[bytes]:
    return client.keys("*closed:*")


def test_a_handler_that_fails_is_recorded_as_failed_and_not_as_completed(make: MakeQueue, client: redis.Redis) -> None:
    queue = make(**HISTORIES)
    queue.publish("a")
    with pytest.raises(Boom), queue.process_message():
        raise Boom("spoilt")
    assert histories(client) == ([], [["Boom", "spoilt", "discard", "a"]])
    (attempt,) = queue.peek(state="failed")
    assert (attempt.message.delivery_count, attempt.verb) == (1, "discard")
    assert totals(queue) == (1, 0, 1)
    assert records_of_acks(client) == [], "nobody can ask for it"


def test_a_message_is_recorded_as_completed_once_its_handler_has_ended(make: MakeQueue, client: redis.Redis) -> None:
    queue = make(**HISTORIES)
    queue.publish("a")
    with queue.process_message():
        assert queue.depth().in_flight == 0, "acked before its handler starts"
        assert histories(client) == ([], [])
    assert histories(client) == ([["a"]], [])
    (done,) = queue.peek(state="completed")
    assert done.message.delivery_count == 1
    assert totals(queue) == (1, 1, 0)
    assert records_of_acks(client) == []


def test_a_failure_is_an_event_with_its_error(make: MakeQueue) -> None:
    events: list[QueueEvent] = []
    queue = make(on_event=events.append)
    queue.publish("a")
    with pytest.raises(Boom), queue.process_message():
        raise Boom("spoilt")
    reported = [
        (event.operation.value, event.outcome.value, event.count, event.exception_type) for event in events[-2:]
    ]
    assert reported == [("ack", "success", 1, None), ("settle", "failure", 1, "Boom")]
    assert events[-1].message_id is not None


@pytest.mark.parametrize("fails", [False, True])
def test_callbacks_are_recorded_alike(make: MakeQueue, client: redis.Redis, fails: bool) -> None:
    queue = make(**HISTORIES)
    queue.publish("a")

    def handle(_: object) -> None:
        if fails:
            raise Boom("spoilt")

    if fails:
        with pytest.raises(Boom):
            queue.process_message_callback(handle)
    else:
        assert queue.process_message_callback(handle)
    assert histories(client) == (([], [["Boom", "spoilt", "discard", "a"]]) if fails else ([["a"]], []))


def test_of_a_batch_the_message_in_hand_and_those_not_reached_failed(make: MakeQueue, client: redis.Redis) -> None:
    queue = make(**HISTORIES)
    queue.publish_many("abcd")

    def work() -> None:
        with queue.claim(4) as lease:
            for message in lease:
                if message.text() == "c":
                    raise Boom

    with pytest.raises(Boom):
        work()
    completed, failed = histories(client)
    assert completed == [["b"], ["a"]]
    assert [reported[-1] for reported in failed] == ["d", "c"]
    assert totals(queue) == (4, 2, 2)


def test_a_batch_taken_whole_fails_whole(make: MakeQueue, client: redis.Redis) -> None:
    queue = make(**HISTORIES)
    queue.publish_many("ab")
    with pytest.raises(Boom), queue.claim(2):
        raise Boom
    assert [reported[-1] for reported in histories(client)[1]] == ["b", "a"]


def test_a_chosen_lease_is_still_known_as_acked(make: MakeQueue, client: redis.Redis) -> None:
    queue = make(**HISTORIES)
    queue.publish("a")
    with queue.claim(lease_id="l"):
        pass
    assert queue.claim(lease_id="l").counts.acked == 1
    assert histories(client) == ([["a"]], [])


def test_an_interruption_is_neither(make: MakeQueue, client: redis.Redis) -> None:
    queue = make(**HISTORIES)
    queue.publish("a")
    with pytest.raises(SystemExit), queue.process_message():
        raise SystemExit
    assert histories(client) == ([], [])


@pytest.mark.parametrize(
    ("option", "expected"),
    [("enable_completed_queue", ([["b"]], [])), ("enable_failed_queue", ([], [["Boom", "", "discard", "a"]]))],
)
def test_one_history_alone(
    make: MakeQueue, client: redis.Redis, option: str, expected: tuple[list[list[str]], list[list[str]]]
) -> None:
    queue = make(**{option: True})
    queue.publish_many("ab")
    with pytest.raises(Boom), queue.process_message():
        raise Boom
    with queue.process_message():
        pass
    assert histories(client) == expected
    assert totals(queue) == (2, 1, 1)
    assert records_of_acks(client) == []


def test_without_histories_success_costs_two_calls_and_failures_are_counted(
    make: MakeQueue, client: redis.Redis
) -> None:
    queue = make()
    queue.publish_many("ab")
    queue.depth()  # creates the group, if it is one
    client.config_resetstat()
    with queue.process_message():
        pass
    assert client.info("commandstats")["cmdstat_evalsha"]["calls"] == 2
    assert records_of_acks(client) == []
    with pytest.raises(Boom), queue.process_message():
        raise Boom
    assert totals(queue) == (2, 1, 1)
    assert histories(client) == ([], [])


def test_a_history_that_cannot_be_written_fails_no_handler(
    make: MakeQueue, bare_client: redis.Redis, caplog: pytest.LogCaptureFixture
) -> None:
    queue = make(**HISTORIES)
    queue.publish("a")
    with caplog.at_level(logging.WARNING, "sluicegate"), queue.process_message():
        bare_client.set(queue.key.completed, "not ours")
    assert "could not be recorded" in caplog.text
    bare_client.delete(queue.key.completed)


# ---------------------------------------------------------------------- the script


def concluded(core: Core, token: bytes, **more: Any) -> Conclusion:
    values = {"name": b"l", "keep_seconds": 3600, "recorded": True, "asked_for": False, "why": b"\x1fBoom\x1fspoilt"}
    return Conclusion(token=token, **{**values, **more})


@pytest.fixture
def core(client: redis.Redis) -> Core:
    return Core(client, completed_cap=0, failed_cap=0)


def acked(core: Core, *names: str) -> tuple[bytes, list[bytes]]:
    """Return the token and the entries of a lease that was acked ahead, which completed nothing."""
    core.do(core.publish("b", *names))
    token, opened = core.opened("l", "n", len(names))
    rules, core.rules = core.rules, dataclasses.replace(core.rules, completed_cap=None)
    core.do(core.settle("l", token, verdict("ack", f"1-{len(names)}")))
    core.rules = rules
    return token, opened.entries


@pytest.mark.parametrize("asked_for", [False, True])
def test_each_part_is_recorded_once_however_often_it_arrives(core: Core, asked_for: bool) -> None:
    token, entries = acked(core, *"abcde")
    ended = concluded(core, token, asked_for=asked_for)
    parts = [
        conclude_call(core.keys, core.rules, ended, 1, 0, 2, entries[:2]),
        conclude_call(core.keys, core.rules, ended, 2, 0, 1, entries[2:4]),
        conclude_call(core.keys, core.rules, ended, 3, 2 if asked_for else 1, 0, entries[4:]),
    ]
    assert core.do(parts[1]) is False, "not before the first"
    for part in parts:
        assert core.do(part) is True
        assert [core.do(earlier) for earlier in parts[: parts.index(part) + 1]] == [False] * (parts.index(part) + 1)
    assert state.history(core.client, core.queue, "completed") == [["c"], ["b"], ["a"]]
    assert [reported[-1] for reported in state.history(core.client, core.queue, "failed")] == ["e", "d"]
    assert state.counters(core.client, core.queue)["failed"] == 2
    assert bool(core.client.exists(core.keys.closed(b"l"))) is asked_for
    if asked_for:
        assert 0 < core.client.ttl(core.keys.closed(b"l")) <= 3600


def test_a_failure_without_a_record_of_its_ack_is_counted_once(core: Core) -> None:
    _, entries = acked(core, "a")
    core.client.delete(core.keys.closed(b"l"))
    call = conclude_call(core.keys, core.rules, concluded(core, b"t:u", recorded=False), 1, 1, 0, entries)
    assert [core.do(call) for _ in range(3)] == [True, False, False]
    assert state.counters(core.client, core.queue)["failed"] == 1
    assert 0 < core.client.ttl(core.keys.closed(b"l")) <= 3600


@pytest.mark.parametrize("stored", [None, b"{}", b"junk", b"3", b'{"token":"x:y","how":"acked"}'])
def test_what_is_not_on_record_as_acked_by_it_is_left_alone(bare_client: redis.Redis, stored: bytes | None) -> None:
    core = Core(bare_client, completed_cap=0, failed_cap=0)
    token, entries = acked(core, "a")
    bare_client.delete(core.keys.closed(b"l"))
    if stored is not None:
        bare_client.set(core.keys.closed(b"l"), stored)
    assert core.do(conclude_call(core.keys, core.rules, concluded(core, token), 1, 1, 1, entries)) is False
    assert not bare_client.exists(core.keys.completed)
    assert bare_client.get(core.keys.closed(b"l")) == stored


def test_large_leases_are_recorded_in_parts(core: Core) -> None:
    token, entries = acked(core, *(str(number) for number in range(2500)))
    driven = Driven(core)
    driven.run(
        conclude_operation(core.keys, core.rules, concluded(core, token, done=entries[:1200], failed=entries[1200:]))
    )
    assert driven.sent == ["conclude"] * 3
    assert core.client.llen(core.keys.completed) == 1200
    assert core.client.llen(core.keys.failed) == 1300


def test_a_full_redis_still_takes_the_record(core: Core) -> None:
    token, entries = acked(core, "a")
    core.client.config_set("maxmemory", "1")
    call = conclude_call(core.keys, core.rules, concluded(core, token), 1, 1, 1, entries)
    assert core.do(call) is True
    core.client.config_set("maxmemory", "0")
