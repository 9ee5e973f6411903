"""`ack_and_claim.lua` in every order of executions, and beside whatever is not plain.

What it leaves undone, the usual calls do; `tests/faults/interleaving.py` plays both together at random.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
import redis

from sluicegate.core.transitions.ack_and_claim import SLOW, Stepped
from sluicegate.core.transitions.claim import Opened
from tests.support import state
from tests.support.core_calls import Core, ids, verdict

ACKED = Stepped("acked")


@pytest.fixture
def core(bare_client: redis.Redis) -> Core:
    return Core(bare_client)


@pytest.fixture
def last(core: Core) -> tuple[str, bytes]:
    """Return the id and token of a lease of "a"; "b" and "c" are pending."""
    core.do(core.publish("b", *"abc"))
    return "m", b"m:" + core.do(core.ack_and_claim("m")).opening


def totals(core: Core) -> dict[str, int]:
    counted = state.counters(core.client, "orders")
    return {name: counted.get(name, 0) for name in ("claimed", "acked", "in_flight")}


def test_one_call_acks_and_claims(core: Core, last: tuple[str, bytes]) -> None:
    stepped = core.do(core.ack_and_claim("n", last))
    assert (stepped.how, stepped.entry.rsplit(b"\x1f", 1)[1]) == ("open", b"b")
    assert totals(core) == {"claimed": 2, "acked": 1, "in_flight": 1}
    assert core.client.zrange(core.keys.leases, 0, -1) == [b"n"]
    state.check(core.client)


def test_the_lease_is_that_of_the_usual_claim(core: Core) -> None:
    core.do(core.publish("b", *"ab"))
    _, opened = core.opened("l", "l", 1)
    stepped = core.do(core.ack_and_claim("m"))
    one, other = (core.client.hgetall(core.keys.lease(name)) for name in (b"l", b"m"))
    opening = stepped.opening.decode().split("-")
    assert one.keys() == other.keys() == {b"m", b"1"}
    as_words = [fields[b"m"].split() for fields in (one, other)]
    assert [words[2:7] + words[8:] for words in as_words] == [as_words[0][2:7] + as_words[0][8:]] * 2
    assert as_words[1][0] == b"m:" + stepped.opening
    assert int(opening[0]) > int(opened.opening.split(b"-")[0])
    assert opening[1] == "2"
    core.do(core.publish("c", "x"))
    core.do(core.ack_and_claim("n", consumer=b"me"))
    assert core.client.hget(core.keys.lease(b"n"), "by") == b"me"


def test_the_next_lease_that_was_lost_meanwhile_is_left_to_the_usual_claim(core: Core, last: tuple[str, bytes]) -> None:
    call = core.ack_and_claim("n", last)
    core.do(call)
    state.expire(core.client, "orders", "n")
    core.do(core.reap("n"))
    assert core.do(call.later(1)) == ACKED
    reply = core.do(core.claim("n", "n", 1))
    assert ids(reply) == ["b"]


def test_a_last_lease_that_was_lost_changes_nothing(core: Core, last: tuple[str, bytes]) -> None:
    state.expire(core.client, "orders", "m")
    assert core.do(core.ack_and_claim("n", last)) == ACKED  # expired, not yet reaped: still its consumer's
    core.do(core.publish("c", "x"))
    token = b"o:" + core.do(core.ack_and_claim("o")).opening
    state.expire(core.client, "orders", "o")
    core.do(core.reap("o"))
    before = state.dumps(core.client)
    assert core.do(core.ack_and_claim("p", ("o", token))) == SLOW
    assert state.dumps(core.client) == before
    assert core.do(core.settle("o", token, verdict("ack", "1"), recorded=False)).lost == [1]


def test_a_lost_last_lease_does_not_hide_a_next_one_that_is_open(core: Core, last: tuple[str, bytes]) -> None:
    """The last lease was taken over; a claim without an ack had opened the next one, and its reply was lost."""
    opened = core.do(core.ack_and_claim("n"))
    core.opened("m", "thief", takeover=last[1])
    assert core.do(core.ack_and_claim("n", last)) == SLOW
    reply = core.do(core.claim("n", "n", 1))
    assert isinstance(reply, Opened)
    assert reply.opening == opened.opening
    assert core.do(core.ack_and_claim("o", ("n", b"n:" + reply.opening))).how == "open"


def test_a_late_execution_prolongs_the_next_lease_or_opens_one_that_expires(
    core: Core, last: tuple[str, bytes]
) -> None:
    call = core.ack_and_claim("n", last)
    first = core.do(call)
    core.client.zadd(core.keys.leases, {"n": 5_000_000_000_000}, xx=True)
    assert core.do(call) == first
    assert core.client.zscore(core.keys.leases, "n") < 5_000_000_000_000
    token = b"n:" + first.opening
    assert core.do(core.ack_and_claim("o", ("n", token), claims=False)) == ACKED
    ghost = core.do(call)
    assert ghost.how == "open"
    assert ghost.opening != first.opening
    assert core.do(core.settle("n", token, verdict("ack", "1"), recorded=False)).lost == [1], "an earlier opening"
    state.check(core.client)


def test_an_ack_without_a_record_is_proved_for_a_time_only(core: Core, last: tuple[str, bytes]) -> None:
    assert core.do(core.ack_and_claim("n", last, held_seconds=1801)) == SLOW
    core.do(core.ack_and_claim("n", last, claims=False))
    assert core.do(core.ack_and_claim("n", last, held_seconds=3599, claims=False)) == ACKED
    assert core.do(core.ack_and_claim("n", last, held_seconds=3600, claims=False)) == SLOW


def test_a_repeat_prolongs_no_lease_beyond_its_maximum(core: Core) -> None:
    core.do(core.publish("b", "a"))
    call = core.ack_and_claim("n", lease_seconds=60, longest=60)
    first = core.do(call)
    packed = core.client.hget(core.keys.lease(b"n"), "m").split()
    core.client.hset(core.keys.lease(b"n"), "m", b" ".join([packed[0], b"%d" % (int(packed[1]) - 1000), *packed[2:]]))
    deadline = core.client.zscore(core.keys.leases, "n")
    assert core.do(call) == SLOW
    assert core.client.zscore(core.keys.leases, "n") == deadline
    assert first.how == "open"


def returned(core: Core) -> None:
    token, _ = core.opened("l", "x", 1)
    core.do(core.settle("l", token, verdict("release", "1")))


def due(core: Core) -> None:
    token, _ = core.opened("l", "x", 1)
    core.do(core.settle("l", token, verdict("nack", "1", delay_seconds=1000)))
    state.fall_due(core.client, "orders")


def expired(core: Core) -> None:
    core.opened("l", "x", 1)
    state.expire(core.client, "orders", "l")


def paused(core: Core) -> None:
    core.client.hset(core.keys.counters, "paused", 1)


def bound(core: Core) -> None:
    core.bind("b", "c")


def of_another_kind(core: Core) -> None:
    for at in range(2):
        entry = core.client.lindex(core.keys.pending, at)
        core.client.lset(core.keys.pending, at, b"3" + entry[1:])


def foreign(core: Core) -> None:
    core.client.rpush(core.keys.pending, "junk")


def empty(core: Core) -> None:
    core.client.delete(core.keys.pending)


def given_up(core: Core) -> None:
    core.do(
        replace(call := core.claim("n", "n", 1), args=(*call.args[:2], 0, *call.args[3:5], 600_000, *call.args[6:]))
    )


NOT_PLAIN: list[Callable[[Core], None]] = [
    returned, due, expired, paused, bound, of_another_kind, foreign, empty, given_up,
]  # fmt: skip


@pytest.mark.parametrize("make", NOT_PLAIN, ids=lambda make: make.__name__)
def test_what_is_not_plain_is_acked_at_most(core: Core, last: tuple[str, bytes], make: Callable[[Core], None]) -> None:
    make(core)
    before, held = vars(state.contents(core.client, "orders")), totals(core)
    assert core.do(core.ack_and_claim("n")) == SLOW
    assert vars(state.contents(core.client, "orders")) == before
    assert core.do(core.ack_and_claim("n", last)) == ACKED
    left = [entry for entry in before["in_flight"] if not entry.endswith(b"\x1fa")]
    assert vars(state.contents(core.client, "orders")) == before | {"in_flight": left}
    assert totals(core) == held | {"acked": held["acked"] + 1, "in_flight": held["in_flight"] - 1}


def test_a_recount_is_left_in_peace(core: Core, last: tuple[str, bytes]) -> None:
    core.client.hset(core.keys.counters, "recount", "r 1 ")
    before = state.dumps(core.client)
    assert core.do(core.ack_and_claim("n", last)) == SLOW
    assert core.do(core.ack_and_claim("n")) == SLOW
    assert state.dumps(core.client) == before
    core.client.hdel(core.keys.counters, "recount")
    call = core.ack_and_claim("n", last, claims=False)
    core.do(call)
    core.client.hset(core.keys.counters, "recount", "r 1 ")
    assert core.do(call) == ACKED


@pytest.mark.parametrize("field", ["tracked", "two slots", "settled", "fenced", "damaged"])
def test_a_last_lease_that_is_not_plain_is_left_to_the_usual_call(
    core: Core, last: tuple[str, bytes], field: str
) -> None:
    packed = core.client.hget(core.keys.lease(b"m"), "m").decode().split(" ")
    changed = {
        "tracked": [*packed, "t"],
        "two slots": [*packed[:4], "2", "2", *packed[6:]],
        "settled": [*packed[:8], "1"],
        "fenced": ["-", *packed[1:]],
        "damaged": packed[:3],
    }[field]
    core.client.hset(core.keys.lease(b"m"), "m", " ".join(changed))
    before = state.dumps(core.client)
    assert core.do(core.ack_and_claim("n", last)) == SLOW
    assert state.dumps(core.client) == before


@pytest.mark.parametrize(("pending", "tokens"), [(1, []), (2, [b"1", b"2"])])
def test_a_claim_that_leaves_messages_wakes_another_consumer(core: Core, pending: int, tokens: list[bytes]) -> None:
    core.do(core.publish("b", *"abc"[:pending]))
    core.client.delete(core.keys.wakeup)
    assert core.do(core.ack_and_claim("n")).how == "open"
    assert core.client.lrange(core.keys.wakeup, 0, -1) == tokens


def test_the_last_message_takes_the_spare_wakeup_along(core: Core) -> None:
    core.do(core.publish("b", "a"))
    assert core.client.lrange(core.keys.wakeup, 0, -1) == [b"1", b"2"]
    core.do(core.ack_and_claim("n"))
    assert core.client.lrange(core.keys.wakeup, 0, -1) == [b"1"]
