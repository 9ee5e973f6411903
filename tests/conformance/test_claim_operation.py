"""What a claim sends, how long it waits, and which events it emits, call by call."""

from __future__ import annotations

from typing import Any

import pytest
import redis

from sluicegate.core.call import Wait
from sluicegate.core.rules import QueueRules
from sluicegate.core.transitions.claim import ClaimReply, ClaimRequest, Empty, Opened, Paused, claim_operation
from sluicegate.core.transitions.settle import SettleRequest, settle_operation
from tests.conformance.driven import Driven
from tests.support import state
from tests.support.core_calls import Core, ids, verdict


@pytest.fixture
def core(client: redis.Redis) -> Core:
    return Core(client)


def claim(driven: Driven, lease: str = "l", empty_seconds: float = 0, **options: Any) -> ClaimReply:
    core = driven.core
    request = ClaimRequest(core.keys.lease_name(lease), b"n", 10, 60, 3600, empty_seconds)
    return driven.run(claim_operation(core.keys, core.rules, request, clock=driven.clock, **options))


# ---------------------------------------------------------------------- waiting


def test_an_idle_wait_costs_two_commands(core: Core) -> None:
    driven = Driven(core)
    assert claim(driven, wait_seconds=5) == Empty()
    assert (driven.sent, driven.waits) == (["claim"], [5])


def test_a_long_idle_wait_costs_two_commands_in_ten_seconds(core: Core) -> None:
    driven = Driven(core)
    claim(driven, wait_seconds=60)
    assert (driven.sent, driven.waits) == (["claim"] * 6, [10] * 6)


def test_a_wait_is_never_so_short_that_an_old_server_waits_forever(core: Core) -> None:
    driven = Driven(core)
    claim(driven, wait_seconds=0.0004)
    assert driven.waits == [0.01]


def test_maintenance_before_a_claim_ends_after_ten_calls(core: Core) -> None:
    """A claim does not wait until hundreds of leases of a dead fleet are reaped; it takes what is there."""
    core.do(core.publish("b", *(f"m{number}" for number in range(30))))
    for number in range(30):
        core.do(core.claim(f"dead{number}", "n", limit=1))
    core.client.zadd(core.keys.leases, {core.keys.lease_name(f"dead{number}"): 1 for number in range(30)})
    driven = Driven(core)
    assert ids(claim(driven)) != []
    assert len(driven.sent) <= 12
    assert driven.sent.count("reap") >= 5


def test_an_answer_to_be_remembered_is_asked_for_once_more(core: Core) -> None:
    driven = Driven(core)
    claim(driven, wait_seconds=5, empty_seconds=600)
    assert driven.sent == ["claim", "claim"]
    core.do(core.publish("b", "a"))
    assert core.do(core.claim("l", "n2")) == Empty(remembered=True)


def test_no_fresh_work_is_claimed_after_the_deadline(core: Core) -> None:
    def too_late(_: Wait) -> bool:
        core.do(core.publish("b", "a"))
        return False

    assert claim(Driven(core, too_late), wait_seconds=5) == Empty()
    assert core.do(core.depth()).pending == 1


def test_a_bell_in_time_is_followed(core: Core) -> None:
    def in_time(_: Wait) -> bool:
        core.do(core.publish("b", "a"))
        return True

    assert ids(claim(Driven(core, in_time), wait_seconds=5)) == ["a"]


def test_a_sleep_that_broke_off_is_taken_up_again(core: Core) -> None:
    """A lost connection ends a sleep early, and answers as a wait without a wake-up does."""
    driven = Driven(core, lambda _: None)

    def broken_off(wait: Wait) -> bool | None:
        driven.now += min(1, wait.seconds) - (wait.seconds if len(driven.waits) < 3 else 0)
        return False if len(driven.waits) < 3 else None

    driven.rings = broken_off
    claim(driven, wait_seconds=5)
    assert driven.waits == [5, 4, 3]
    assert driven.sent == ["claim"] * 3


def test_a_queue_that_stops_sends_nothing_more(core: Core) -> None:
    driven = Driven(core, lambda _: None)
    assert claim(driven, wait_seconds=5, empty_seconds=600) == Empty()
    assert driven.sent == ["claim"]


@pytest.mark.parametrize("what", ["due", "expiring"])
def test_it_sleeps_no_longer_than_until_something_happens(core: Core, what: str) -> None:
    core.do(core.publish("b", "a"))
    token, _ = core.opened("m", "n", lease_seconds=2)
    if what == "due":
        core.do(core.settle("m", token, verdict("nack", "1", delay_seconds=2)))
    driven = Driven(core)
    driven.rings = lambda _: None
    claim(driven, wait_seconds=5)
    assert 1 < driven.waits[0] <= 2


def test_a_paused_queue_is_waited_for_as_cheaply(core: Core) -> None:
    core.client.hset(core.keys.counters, "paused", "1")
    driven = Driven(core)
    assert claim(driven, wait_seconds=5, emits_events=True) == Paused()
    assert (driven.sent, driven.events) == (["claim"], [("claim", "paused", 0)])


# ---------------------------------------------------------------------- telling


def test_what_comes_back_before_a_claim_is_told(core: Core) -> None:
    core.rules = QueueRules(max_delivery_count=1, max_dead_length=1)
    core.do(core.publish("b", *"abcdefgh"))
    core.opened("alone-1", "n", 1)
    core.opened("alone-2", "n", 1)
    core.opened("three", "n", 3)
    token, _ = core.opened("late", "n", 2)
    core.rules = QueueRules(max_delivery_count=9)
    core.do(core.settle("late", token, verdict("nack", "1-2", delay_seconds=1000)))
    core.rules = QueueRules(max_delivery_count=1, max_dead_length=1)
    state.expire(core.client, core.queue)
    state.fall_due(core.client, core.queue)
    driven = Driven(core)
    claim(driven, emits_events=True)
    assert driven.events[:-1] == [
        ("promote", "success", 2),
        ("bury", "success", 1),
        ("bury", "success", 1),
        ("bury", "dropped", 1),
        ("reap", "success", 3),
    ]
    assert driven.events[-1][:2] == ("claim", "success")


def test_nothing_is_told_unless_asked(core: Core) -> None:
    core.do(core.publish("b", "a"))
    driven = Driven(core)
    claim(driven)
    assert driven.events == []


def test_the_ends_of_a_claim_are_told(core: Core) -> None:
    core.do(core.publish("b", "a"))
    reported = []
    for take_over in (None, None, 0):
        driven = Driven(core)
        request = ClaimRequest(b"l", f"n{len(reported)}".encode(), 10, 60, 3600)
        operation = claim_operation(
            core.keys, core.rules, request, clock=driven.clock, emits_events=True, take_over_after_seconds=take_over
        )
        reply = driven.run(operation)
        reported += driven.events
    assert isinstance(reply, Opened)
    core.do(core.settle("l", b"n2:" + reply.opening, verdict("ack", "1")))
    for lease in ("l", "m"):
        driven = Driven(core)
        claim(driven, lease, emits_events=True)
        reported += driven.events
    assert reported == [
        ("claim", "success", 1),
        ("claim", "held", 0),
        ("take_over", "success", 1),
        ("claim", "duplicate", 1),
        ("claim", "empty", 0),
    ]


def test_dead_letters_dropped_by_a_settle_are_told(core: Core) -> None:
    core.rules = QueueRules(max_dead_length=1)
    core.do(core.publish("b", *"abc"))
    token, _ = core.opened("l", "n")
    driven = Driven(core)
    request = SettleRequest(b"l", token, 3600, True, (verdict("bury", "1-3"),))
    operation = settle_operation(
        core.keys,
        core.rules,
        request,
        clock=driven.clock,
        confirmed_at=0,
        lease_seconds=60,
        lease_id="l",
        emits_events=True,
    )
    assert driven.run(operation).dropped == 2
    assert driven.events == [("bury", "dropped", 2)]
