"""No value at any of a queue's keys stops the claims of other messages; what cannot be read is kept and reported."""

from __future__ import annotations

import re
from contextlib import closing
from typing import Any

import pytest
import redis

from sluicegate import QueueEvent, RedisMessageQueue
from sluicegate.core.entry import is_entry
from sluicegate.core.transitions.claim import Expired, Opened
from sluicegate.core.transitions.extend import Extended
from sluicegate.core.transitions.manifest import manifest_call
from sluicegate.core.transitions.publish import TOO_OLD, Published
from sluicegate.core.transitions.reap import Reaped
from sluicegate.core.transitions.settle import Settled
from sluicegate.errors import MalformedStoredMessageError
from sluicegate.spark.transitions import acquire_consumer_call
from tests.support import state
from tests.support.core_calls import Core, verdict
from tests.support.damage import NEWER, VALUES, Damage, busy, matrix

MATRIX = matrix()


def make_queue(client: redis.Redis, events: list[QueueEvent] | None) -> RedisMessageQueue:
    return RedisMessageQueue(
        "orders",
        client=client,
        on_event=None if events is None else events.append,
        message_wait_interval_seconds=0,
        visibility_timeout_seconds=60,
        retry_budget_seconds=1,
        enable_completed_queue=True,
        enable_failed_queue=True,
    )


def drained(core: Core, queue: RedisMessageQueue) -> list[bytes]:
    """Claim and ack until nothing is left that time would bring; the payloads."""
    worked: list[bytes] = []
    for _ in range(60):
        for name in core.client.zrange(core.keys.leases, 0, -1):
            core.client.zadd(core.keys.leases, {name: 1})
        state.fall_due(core.client, "orders")
        while lease := queue.claim(3):
            worked += [message.payload for message in lease.messages]
            lease.ack()
        if queue.depth().ready + core.client.zcard(core.keys.leases) + core.client.zcard(core.keys.delayed) == 0:
            return worked
    raise AssertionError(f"it does not drain: {queue.depth()}")


@pytest.mark.parametrize("damage", MATRIX.values(), ids=[re.sub(r"[^\w-]+", "-", name) for name in MATRIX])
def test_a_damaged_value_stops_nobody(bare_client: redis.Redis, damage: Damage) -> None:
    core = Core(bare_client)
    calls = _calls_of_the_holder(core, busy(core))
    damage(core)
    events: list[QueueEvent] = []
    with closing(make_queue(bare_client, events)) as queue:
        queue.publish(b"a neighbour")
        _every_look(queue)
        for call in calls:
            core.do(call)
        assert set(drained(core, queue)) >= {b"a neighbour", b"j", b"k"}
        _every_look(queue)
        queue.publish(b"a later one")
        assert drained(core, queue) == [b"a later one"]
        queue.redrive(where=lambda letter: letter.message is not None)
        queue.redrive()
        drained(core, queue)
        for kind in ("dead", "completed", "failed", "pending"):
            queue.purge(kind)
        assert queue.depth().ready == 0
    assert events


@pytest.mark.parametrize("name", VALUES)
@pytest.mark.parametrize(
    "place",
    ["pending", "returned", "delayed", "a slot that is reaped", "a slot that is settled", "a slot that is adopted"],
)
def test_what_is_no_message_is_kept_as_it_is(bare_client: redis.Redis, place: str, name: str) -> None:
    core, value = Core(bare_client), VALUES[name]
    events: list[QueueEvent] = []
    with closing(make_queue(bare_client, events)) as queue:
        queue.publish_many(["a", "b"])
        match place.rsplit(maxsplit=1)[-1]:
            case "pending":
                bare_client.rpush(core.keys.pending, value)
            case "returned" | "delayed":
                bare_client.zadd(getattr(core.keys, place), {value: 1})
            case how:
                token, _ = core.opened("l", "n", 2)
                settle = core.settle("l", token, verdict("nack", "1-2"))
                bare_client.hset(core.keys.lease(b"l"), "1", value)
                if how != "reaped":
                    core.do(settle if how == "settled" else core.claim("l", "n"))
        worked = drained(core, queue)
        dead, aside = [letter.value for letter in queue.peek(9, state="dead")], queue.peek(9, state="set_aside")
        assert b"b" in worked
        if is_entry(value):
            assert (len(worked) + len(dead), aside) == (2 if "slot" in place else 3, [])
        elif not value and place == "delayed":
            assert not dead, "each script removes the empty member, so that a full Redis lets it go on"
        else:
            assert worked == ([b"b"] if "slot" in place else [b"a", b"b"])
            assert (dead, aside) == (([], [value]) if value == NEWER else ([value], []))
            assert (queue.depth().dead, queue.depth().set_aside) == (len(dead), len(aside))
        assert queue.depth().in_flight == 0
    reported = {(event.operation.value, event.outcome.value) for event in events}
    if value == NEWER and place in ("pending", "a slot that is reaped"):
        assert ("claim" if place == "pending" else "reap", "set_aside") in reported
    elif not is_entry(value) and place in ("pending", "a slot that is reaped"):
        assert ("bury", "success") in reported


def test_a_newer_versions_message_is_set_aside_by_a_queue_that_keeps_foreign_values(bare_client: redis.Redis) -> None:
    core = Core(bare_client, strict=True)
    bare_client.rpush(core.keys.pending, NEWER, b"foreign")
    core.do(core.publish("b", "a"))
    assert isinstance(core.do(core.claim("l", "n")), Opened)
    assert bare_client.zrange(core.keys.set_aside, 0, -1) == [NEWER]
    assert bare_client.lrange(core.keys.pending, 0, -1) == [b"foreign"]


def test_a_lease_whose_words_are_gone_gives_its_messages_back(bare_client: redis.Redis) -> None:
    core = Core(bare_client)
    core.do(core.publish("b", *"abcd"))
    token, _ = core.opened("l", "n", 4)
    bare_client.hdel(core.keys.lease(b"l"), "m")
    assert core.do(core.settle("l", token, verdict("ack", "1-4"), recorded=False)).lost == [1, 2, 3, 4]
    assert core.do(core.extend("l", token)) is Extended.LOST
    assert isinstance(core.do(core.claim("l", "n")), Expired), "before its deadline: nobody can hold it any more"
    assert core.do(core.reap("l", 3)) == Reaped(finished=False, moved=3, buried=0)
    assert core.do(core.reap("l", 3)) == Reaped(finished=True, moved=1, buried=0)
    assert core.do(core.settle("l", token, verdict("ack", "1"), recorded=False)).lost == [1]
    assert state.contents(bare_client, "orders").ids()["returned"] == ["b-0", "b-1", "b-2", "b-3"]
    state.check(bare_client)


@pytest.mark.parametrize("verb", ["ack", "nack"])
def test_a_lease_that_counts_too_few_slots_ends_with_the_last_of_them(bare_client: redis.Redis, verb: Any) -> None:
    core = Core(bare_client)
    core.do(core.publish("b", *"abcd"))
    token, _ = core.opened("l", "n", 4)
    words = bare_client.hget(core.keys.lease(b"l"), "m").split()
    words[5] = b"1"
    bare_client.hset(core.keys.lease(b"l"), "m", b" ".join(words))
    assert core.do(core.settle("l", token, verdict(verb, "1-2"))).held == 2
    state.check(bare_client)
    assert core.do(core.settle("l", token, verdict("ack", "3-4"))) == Settled([], 0, [])


@pytest.mark.parametrize("published", ["many", "", "-5", "0.5", "inf", "nan", "9" * 20])
def test_an_overwritten_counter_keeps_the_order_of_what_waits(bare_client: redis.Redis, published: str) -> None:
    core = Core(bare_client)
    core.do(core.publish("b", *"abc"))
    damage = {"published": published, "in_flight": "1.5", "claimed": "", "acked": "x"}
    bare_client.hset(core.keys.counters, mapping=damage)
    core.do(core.publish("c", "d"))
    token, _ = core.opened("l", "n", 4)
    core.do(core.settle("l", token, verdict("nack", "1,3-4"), verdict("ack", "2")))
    assert [entry[-1:] for entry in state.contents(bare_client, "orders").returned] == [b"a", b"c", b"d"]
    assert {"published": 4, "claimed": 4, "acked": 1, "in_flight": 0}.items() <= state.counters(
        bare_client, "orders"
    ).items()


def test_a_record_that_something_else_has_overwritten_is_shown_and_can_be_purged(bare_client: redis.Redis) -> None:
    core = Core(bare_client)
    with closing(make_queue(bare_client, None)) as queue:
        queue.publish_many(["a", "b"])
        queue.claim(2).bury()
        bare_client.hset(core.keys.dead_records, bare_client.zrange(core.keys.dead, 0, 0)[0], b"overwritten")
        letters = queue.peek(state="dead")
        assert [(letter.value[-11:], letter.reason) for letter in letters][:1] == [(b"overwritten", "malformed")]
        assert [letter.message is None for letter in letters] == [True, False]
        report = queue.redrive(where=lambda letter: letter.reason in ("malformed", "buried"))
        assert (report.redriven, report.blocked) == (1, 1)
        assert queue.purge("dead") == 1


def test_a_receipt_that_something_else_has_overwritten_is_an_unknown_outcome(bare_client: redis.Redis) -> None:
    core = Core(bare_client)
    call = core.publish("b", "a")
    core.do(call)
    bare_client.set(core.keys.published(b"b"), "garbage")
    assert core.do(call) == Published(TOO_OLD, {})
    assert core.do(core.depth()).pending == 1


@pytest.mark.parametrize("value", ["garbage", "1.5", "99999999999999999999"])
def test_a_seat_that_something_else_has_overwritten_can_be_taken(bare_client: redis.Redis, value: str) -> None:
    core = Core(bare_client)
    first = core.do(acquire_consumer_call(core.keys, "c", b"n1", 0))
    fields = ("epoch", "reader", "floor", "top", "left", "readers")
    bare_client.hset(core.keys.consumer("c"), mapping=dict.fromkeys(fields, value))
    second = core.do(acquire_consumer_call(core.keys, "c", b"n2", 0))
    assert second.acquired
    assert second.epoch >= first.epoch
    assert second.left == ()


def test_a_message_with_headers_that_are_none_is_still_worked_on(bare_client: redis.Redis) -> None:
    core = Core(bare_client)
    bare_client.rpush(core.keys.pending, VALUES["an entry with no UTF-8"])
    with closing(make_queue(bare_client, [])) as queue, queue.claim() as lease:
        (message,) = lease.messages
        assert (message.id, message.deduplication_key, message.payload) == ("\\xff\\xfe", "\\xff", b"x")
        with pytest.raises(MalformedStoredMessageError, match="not a JSON object"):
            _ = message.headers
    assert queue.stats().acked == 1


def _calls_of_the_holder(core: Core, token: bytes) -> list[Any]:
    """Return what the owner of the lease, its retry and its successor may send."""
    return [
        core.extend("l", token),
        manifest_call(core.keys, b"l", 1, 9),
        core.claim("l", "n"),
        core.settle(
            "l", token, verdict("nack", "1"), verdict("bury", "2"), verdict("release", "3"), verdict("ack", "4")
        ),
        core.claim("l", "n2", takeover=b"?"),
        core.claim("l", "n2", takeover=token),
        core.claim("first", "n3"),
        manifest_call(core.keys, b"l"),
        core.reap("l"),
    ]


def _every_look(queue: RedisMessageQueue) -> None:
    queue.depth()
    queue.stats()
    for kind in ("pending", "returned", "delayed", "in_flight", "dead", "completed", "failed", "set_aside"):
        for one in queue.peek(100, state=kind):
            repr(one)
