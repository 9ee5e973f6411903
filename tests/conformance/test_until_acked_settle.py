"""Deduplication markers that live as long as their message: freed when it ends, by its own hand only."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import redis

from sluicegate import RedisMessageQueue, Verdict
from sluicegate.core.entry import bound_keys
from sluicegate.core.rules import QueueRules
from sluicegate.core.transitions.claim import ClaimRequest, claim_operation
from sluicegate.core.transitions.extend import Extended
from sluicegate.core.transitions.reap import Reaped
from tests.conformance.driven import Driven
from tests.support import markers, state
from tests.support.core_calls import Core, ids, verdict

WEEK_MS = 7 * 86400 * 1000


@pytest.fixture
def core(client: redis.Redis) -> Core:
    """Six pending messages; a to d hold their key until they end."""
    core = Core(client)
    core.do(core.publish("b", *"abcdef"))
    core.bind(*"abcd")
    return core


def owners(core: Core) -> dict[str, str]:
    return {name: owner for name in "abcdef" if (owner := core.owner(name)) is not None}


ALL = {"a": "b-0", "b": "b-1", "c": "b-2", "d": "b-3"}


@pytest.mark.parametrize("verb", ["ack", "discard", "bury"])
@pytest.mark.parametrize("slots", ["1-6", "2,4-5"], ids=["whole", "some"])
def test_a_marker_ends_with_its_message(core: Core, verb: str, slots: str) -> None:
    token, _ = core.opened("l", "n")
    call = core.settle("l", token, verdict(verb, slots))  # type: ignore[arg-type]
    for _ in range(2):
        assert core.do(call).lost == []
        assert owners(core) == ({} if slots == "1-6" else {"a": "b-0", "c": "b-2"})


def test_a_message_that_comes_back_keeps_its_marker(core: Core) -> None:
    token, _ = core.opened("l", "n")
    core.do(core.settle("l", token, verdict("nack", "1"), verdict("release", "2"), verdict("nack", "5")))
    state.expire(core.client, core.queue)
    assert core.do(core.reap("l")).moved == 3
    assert owners(core) == ALL


def test_a_nack_that_buries_frees_the_marker(core: Core) -> None:
    core.rules = QueueRules(max_delivery_count=1)
    token, _ = core.opened("l", "n")
    core.do(core.settle("l", token, verdict("nack", "1-3")))
    assert owners(core) == {"d": "b-3"}
    assert sorted(state.contents(core.client, core.queue).ids()["dead"]) == ["b-0", "b-1", "b-2"]


def test_a_release_that_buries_frees_the_marker(core: Core) -> None:
    core.rules = QueueRules(max_delivery_count=1)
    for attempt in range(4):  # the last counts
        token, reply = core.opened("l", f"n{attempt}", 1)
        bound = bound_keys(enumerate(reply.entries, 1))
        core.do(core.settle("l", token, verdict("release", "1", named=False)))
        assert bound == ((1, b"a"),)
    assert state.contents(core.client, core.queue).ids()["dead"] == ["b-0"]
    assert owners(core) == {name: ALL[name] for name in "bcd"}


def test_a_claim_given_back_that_buries_frees_the_marker(core: Core) -> None:
    core.rules = QueueRules(max_delivery_count=1)
    for attempt in range(3):
        token, _ = core.opened("l", f"n{attempt}", 1)
        core.do(core.settle("l", token, verdict("release", "1", named=False)))
    driven = Driven(core)
    request = ClaimRequest(core.keys.lease_name("m"), b"n9", 1, 60, 3600)
    claim = claim_operation(core.keys, core.rules, request, clock=driven.clock)
    core.do(next(claim))
    look = claim.throw(KeyboardInterrupt())
    release = claim.send(core.do(look))
    with pytest.raises(KeyboardInterrupt):
        claim.send(core.do(release))
    assert state.contents(core.client, core.queue).ids()["dead"] == ["b-0"]
    assert owners(core) == {name: ALL[name] for name in "bcd"}


def test_a_delayed_nack_prolongs_the_marker(core: Core) -> None:
    for name in "ab":
        markers.shorten(core.client, core.keys, name.encode(), px=5000)
    markers.hold(core.client, core.keys, b"c", "b-2", px=3 * WEEK_MS)
    token, _ = core.opened("l", "n")
    core.do(core.settle("l", token, verdict("nack", "1,3,5", delay_seconds=100), verdict("nack", "2")))
    lives = {name: markers.left_ms(core.client, core.keys, name.encode()) for name in "abc"}
    assert WEEK_MS + 95_000 < lives["a"] <= WEEK_MS + 100_000, "it outlives the delay"
    assert 0 < lives["b"] <= 5000, "no delay, no longer life"
    assert 2 * WEEK_MS < lives["c"] <= 3 * WEEK_MS, "a long life is not cut short"


@pytest.mark.parametrize("verb", ["ack", "bury", "discard", "nack"])
def test_a_marker_that_changed_hands_is_left_alone(core: Core, verb: str) -> None:
    markers.hold(core.client, core.keys, b"a", "other-0", px=60_000)
    markers.release(core.client, core.keys, b"b")
    token, _ = core.opened("l", "n")
    core.do(core.settle("l", token, verdict(verb, "1-2", delay_seconds=100)))  # type: ignore[arg-type]
    assert core.owner("a") == "other-0"
    assert markers.left_ms(core.client, core.keys, b"a") <= 60_000
    assert core.owner("b") is None


def test_a_late_or_strange_verdict_frees_nothing(core: Core) -> None:
    token, _ = core.opened("l", "n")
    late = core.settle("l", token, verdict("ack", "1-6"))
    strange = core.settle("l", b"n:1-1", verdict("ack", "1-6"))
    core.do(strange)
    state.expire(core.client, core.queue)
    core.do(core.reap("l"))
    core.do(late)
    assert owners(core) == ALL
    assert ids(core.opened("l", "n2")[1]) == ["a", "b"]
    core.do(late)
    assert owners(core) == ALL


def test_a_repeated_ack_spares_the_next_message_under_the_key(core: Core) -> None:
    token, _ = core.opened("l", "n", 1)
    call = core.settle("l", token, verdict("ack", "1"))
    core.do(call)
    core.do(core.publish("c", "a", keyed=True))
    assert core.owner("a") == "c-0"
    core.do(call)
    assert core.owner("a") == "c-0"


def test_messages_without_such_a_marker_cost_no_key(core: Core) -> None:
    _, reply = core.opened("l", "n")
    found = bound_keys(enumerate(reply.entries, 1))
    assert found == tuple((slot, name.encode()) for slot, name in enumerate("abcd", 1))
    token = b"n:" + reply.opening
    assert len(core.settle("l", token, verdict("ack", "5-6")).keys) == 17
    assert len(core.settle("l", token, verdict("release", "1-6")).keys) == 17
    named = core.settle("l", token, verdict("ack", "2-3"))
    assert (len(named.keys), b"b\0c\0" in named.args) == (18, True), "one bucket has both"


def test_more_markers_than_one_command_frees(client: redis.Redis) -> None:
    core = Core(client)
    names = [f"m{number}" for number in range(2500)]
    for at in range(0, 2500, 1000):
        core.do(core.publish(f"b{at}", *names[at : at + 1000]))
    core.bind(*names)
    token, _ = core.opened("l", "n", 2500)
    core.do(core.settle("l", token, verdict("ack", "1-2500")))
    assert markers.held(client, core.keys) == {}


def test_a_full_redis_frees_markers_too(core: Core) -> None:
    token, _ = core.opened("l", "n")
    call = core.settle("l", token, verdict("ack", "1"), verdict("bury", "2"), verdict("nack", "3", delay_seconds=9))
    core.client.config_set("maxmemory", "1")
    assert core.do(call).lost == []
    core.client.config_set("maxmemory", "0")
    assert owners(core) == {"c": "b-2", "d": "b-3"}


# ---------------------------------------------------------------------- reap


def poisoned(core: Core) -> None:
    """Make a lease `l` of message a alone, expired, at its last delivery."""
    core.rules = QueueRules(max_delivery_count=1)
    core.opened("l", "n", 1)
    state.expire(core.client, core.queue, "l")


def test_a_reap_asks_for_the_marker_before_it_buries(core: Core) -> None:
    poisoned(core)
    asked = core.do(core.reap("l"))
    assert asked == Reaped(finished=False, moved=0, buried=0, wanted=(b"a",))
    assert core.do(core.reap("l")) == asked
    assert core.owner("a") == "b-0"
    assert core.do(core.depth()).dead == 0
    assert core.do(core.reap("l", wanted=asked.wanted)) == Reaped(finished=True, moved=0, buried=1)
    assert core.owner("a") is None
    assert core.do(core.reap("l", wanted=asked.wanted)).buried == 0
    assert state.contents(core.client, core.queue).ids()["dead"] == ["b-0"]


def test_a_reap_that_asked_has_fenced(core: Core) -> None:
    core.rules = QueueRules(max_delivery_count=1)
    token, _ = core.opened("l", "n", 1)
    state.expire(core.client, core.queue)
    core.do(core.reap("l"))
    assert core.do(core.extend("l", token)) is Extended.LOST
    assert core.do(core.settle("l", token, verdict("ack", "1"))).lost == [1]
    assert core.owner("a") == "b-0"


def test_a_reap_with_the_marker_of_another_message_asks_again(core: Core) -> None:
    poisoned(core)
    markers.hold(core.client, core.keys, b"z", "other")
    assert core.do(core.reap("l", wanted=[b"z"])).wanted == (b"a",)
    assert core.owner("z") == "other"


def test_a_reap_spares_a_marker_that_changed_hands(core: Core) -> None:
    poisoned(core)
    markers.hold(core.client, core.keys, b"a", "other-0", px=60_000)
    assert core.do(core.reap("l", wanted=[b"a"])).buried == 1
    assert core.owner("a") == "other-0"


def test_a_claim_lets_a_poisonous_message_be_buried_with_its_marker(core: Core) -> None:
    poisoned(core)
    driven = Driven(core)
    request = ClaimRequest(core.keys.lease_name("m"), b"n2", 10, 60, 3600)
    assert ids(driven.run(claim_operation(core.keys, core.rules, request, clock=driven.clock))) == list("bcdef")
    assert driven.sent == ["claim", "reap", "reap", "claim"]
    assert owners(core) == {name: ALL[name] for name in "bcd"}


@pytest.mark.parametrize("alone", [True, False], ids=["one message", "a batch"])
def test_a_key_is_held_for_as_long_as_a_nack_puts_its_message_off(
    make_queue: Callable[..., RedisMessageQueue], client: redis.Redis, alone: bool
) -> None:
    """The safety bound of a marker is seven days; the message becomes claimable after thirty."""
    queue = make_queue(get_deduplication_key="id", deduplication_policy="until_acked")
    queue.publish_many([{"id": "a"}] if alone else [{"id": "a"}, {"id": "b"}])
    lease = queue.claim(2)
    lease.settle(Verdict("nack", lease.messages[0], delay_seconds=30 * 86_400))
    assert markers.left_ms(client, queue.session.keys, b"a") > 30 * 86_400_000
    assert queue.publish({"id": "a"}) is False
    if not alone:
        assert markers.left_ms(client, queue.session.keys, b"b") <= WEEK_MS
        lease.ack()
