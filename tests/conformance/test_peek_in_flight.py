"""Looking into leases: which messages are in flight, who holds them, and until when."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import pytest
import redis

from sluicegate import InFlightMessage, RedisMessageQueue
from sluicegate.core.transitions.in_flight import in_flight_operation
from sluicegate.errors import ConfigurationError
from tests.conformance.driven import Driven
from tests.support import state
from tests.support.core_calls import Core, verdict

MakeQueue = Callable[..., RedisMessageQueue]


def texts(found: list[InFlightMessage]) -> str:
    return "".join(one.message.text() for one in found)


def now(client: redis.Redis) -> datetime:
    seconds, us = client.time()
    return datetime.fromtimestamp(seconds + us / 1e6, UTC)


def near(moment: datetime | None, expected: datetime) -> bool:
    return moment is not None and abs(moment - expected) < timedelta(seconds=5)


def test_a_message_in_flight_is_shown_with_its_lease_and_deadline(
    queue: RedisMessageQueue, client: redis.Redis
) -> None:
    queue.publish_many("abc", headers={"kind": "test"})
    lease = queue.claim(2, lease_id="run-{1}", lease_seconds=100, heartbeat=False)
    began = now(client)

    first, second = queue.peek(state="in_flight")

    assert (first.id, second.id) == tuple(message.id for message in lease.messages)
    assert (first.message.text(), first.message.slot, first.headers) == ("a", 1, {"kind": "test"})
    assert (first.lease_id, first.delivery_count, first.takeovers) == ("run-{1}", 1, 0)
    assert 95 < first.seconds_left <= 100
    assert not first.expired
    assert near(first.deadline, began + timedelta(seconds=100))
    assert all(near(moment, began) for moment in (first.opened_at, first.held_since, first.extended_at))
    assert repr(first) == "InFlightMessage(lease_id='run-{1}', slot=1, expired=False)"


def test_a_takeover_and_an_expiry_are_told(queue: RedisMessageQueue, client: redis.Redis) -> None:
    queue.publish("a")
    queue.claim(lease_id="l", lease_seconds=100, heartbeat=False)
    heir = queue.claim(lease_id="l", take_over_after_seconds=0, lease_seconds=50, heartbeat=False)
    (held,) = queue.peek(state="in_flight")
    assert (held.takeovers, held.delivery_count) == (1, heir.messages[0].delivery_count) == (1, 2)
    assert 45 < held.seconds_left <= 50
    state.expire(client, "orders")
    (held,) = queue.peek(state="in_flight")
    assert held.expired
    assert -5 < held.seconds_left < 0


def test_those_whose_lease_expires_first_come_first_and_what_has_a_verdict_is_gone(queue: RedisMessageQueue) -> None:
    queue.publish_many("abcdef")
    late = queue.claim(3, lease_seconds=300, heartbeat=False)
    soon = queue.claim(2, lease_seconds=100, heartbeat=False)
    assert texts(queue.peek(state="in_flight")) == "deabc"
    late.ack(late.messages[1])
    assert texts(queue.peek(state="in_flight")) == "deac"
    soon.ack()
    assert texts(queue.peek(state="in_flight")) == "ac"
    late.release()
    assert queue.peek(state="in_flight") == []


def test_count_and_offset_cross_leases(queue: RedisMessageQueue) -> None:
    queue.publish_many("abcdefghij")
    leases = [queue.claim(size, lease_seconds=100 + size, heartbeat=False) for size in (1, 2, 3, 4)]
    leases[2].ack(leases[2].messages[1])  # e
    everything = "abcdfghij"
    for offset in range(11):
        for count in (1, 2, 5, 20):
            shown = texts(queue.peek(count, state="in_flight", offset=offset))
            assert shown == everything[offset : offset + count], (offset, count)


def test_a_look_changes_nothing(queue: RedisMessageQueue, client: redis.Redis) -> None:
    queue.publish_many("abc")
    queue.claim(2)
    before = state.dumps(client)
    queue.peek(state="in_flight")
    assert state.dumps(client) == before


def test_a_long_lease_id_is_told_as_its_hash(queue: RedisMessageQueue) -> None:
    queue.publish("a")
    lease = queue.claim(lease_id="x" * 50)
    assert lease
    (held,) = queue.peek(state="in_flight")
    assert held.lease_id.startswith("#")


def test_an_unknown_state_names_this_one(queue: RedisMessageQueue) -> None:
    with pytest.raises(ConfigurationError, match="in_flight"):
        queue.peek(state="processing")  # type: ignore[call-overload]


# ---------------------------------------------------------------------- pages and damage


@pytest.fixture
def core(client: redis.Redis) -> Core:
    return Core(client)


@pytest.mark.parametrize("max_leases", [1, 2, 500])
@pytest.mark.parametrize("max_bytes", [1, 200, 4_000_000])
def test_pages_show_each_message_once(core: Core, max_leases: int, max_bytes: int) -> None:
    core.do(core.publish("b", *"abcdefghijkl"))
    for at, size in enumerate((1, 4, 2, 1, 3)):
        core.opened(f"l{at}", "n", size, lease_seconds=100 + at)
    token, _ = core.opened("l9", "n", 1, lease_seconds=200)
    core.do(core.settle("l9", token, verdict("release", "1")))
    for offset in (0, 3, 8, 20):
        driven = Driven(core)
        found = driven.run(in_flight_operation(core.keys, 50, offset, max_leases=max_leases, max_bytes=max_bytes))
        assert [one.entry[-1:].decode() for one in found] == list("abcdefghijk"[offset:])
        assert [(one.name, one.slot) for one in found][:1] in ([(b"l0", 1)], [(b"l1", 3)], [(b"l4", 1)], [])


def test_a_lease_that_is_being_reaped_shows_what_is_left_as_expired(core: Core) -> None:
    core.do(core.publish("b", *"abc"))
    core.opened("l", "n", 3)
    state.expire(core.client, core.queue)
    core.do(core.reap("l", step=1))
    found = Driven(core).run(in_flight_operation(core.keys, 10, 0))
    assert [(one.entry[-1:], one.reaping, one.opened) for one in found] == [(b"b", True, None), (b"c", True, None)]


@pytest.mark.parametrize("packed", [b"", b"junk", b"t 1 2 3 4 5 6 7 8 9", b"t:u 9 9 0 9 9 9 9 9", b"\xff\x00"])
def test_a_damaged_lease_shows_what_can_be_read(bare_client: redis.Redis, packed: bytes) -> None:
    core = Core(bare_client)
    core.do(core.publish("b", *"abcd"))
    core.opened("l", "n", 3, lease_seconds=100)
    core.opened("m", "n", 1, lease_seconds=200)
    key = core.keys.lease(b"l")
    bare_client.hset(key, mapping={"m": packed, "99999999999999999999": "x", "note": "y"})
    bare_client.hdel(key, "2")
    found = Driven(core).run(in_flight_operation(core.keys, 10, 0))
    assert [one.entry[-1:] for one in found] == [b"a", b"c", b"d"]
    assert all(InFlightMessage.from_held(one).lease_id in "lm" for one in found)
    assert InFlightMessage.from_held(found[0]).message.text() == "a"


@pytest.mark.parametrize("score", ["+inf", "-inf", 1e300, -5])
def test_a_deadline_out_of_this_world_is_the_nearest_one(bare_client: redis.Redis, score: float) -> None:
    core = Core(bare_client)
    core.do(core.publish("b", "a"))
    core.opened("l", "n", 1)
    bare_client.zadd(core.keys.leases, {b"l": score})
    (held,) = Driven(core).run(in_flight_operation(core.keys, 10, 0))
    shown = InFlightMessage.from_held(held)
    assert shown.deadline.year in (9999, 1970)
    assert shown.expired is (shown.deadline.year == 1970)


def test_a_slot_that_holds_something_else_is_shown_as_it_is(bare_client: redis.Redis) -> None:
    core = Core(bare_client)
    core.do(core.publish("b", *"ab"))
    core.opened("l", "n", 2)
    bare_client.hset(core.keys.lease(b"l"), "1", b"junk")
    first, second = (InFlightMessage.from_held(one) for one in Driven(core).run(in_flight_operation(core.keys, 10, 0)))
    assert (first.message.entry, second.message.text()) == (b"junk", "b")
