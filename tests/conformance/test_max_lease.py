"""The longest life of a lease, kept by the server whatever its holder asks for."""

from __future__ import annotations

import pytest
import redis

from sluicegate.core.transitions.claim import ClaimRequest, Held, Opened, claim_operation
from sluicegate.core.transitions.extend import Extended
from tests.conformance.driven import Driven
from tests.support import state
from tests.support.core_calls import Core, ids

LONGEST = 100


@pytest.fixture
def core(client: redis.Redis) -> Core:
    core = Core(client, max_lease_seconds=LONGEST)
    core.do(core.publish("b", *"ab"))
    return core


def left(core: Core, lease: str = "l") -> float:
    """Seconds to the deadline of a lease."""
    deadline = core.client.zscore(core.keys.leases, core.keys.lease_name(lease))
    assert deadline is not None
    seconds, micro = core.client.time()
    return float(deadline) / 1000 - seconds - micro / 1e6


def age(core: Core, seconds: float, lease: str = "l") -> None:
    """Let a lease have begun so much earlier."""
    key = core.keys.lease(core.keys.lease_name(lease))
    fields = core.client.hget(key, "m").split()
    fields[1] = b"%d" % (int(fields[1]) - seconds * 1000)
    core.client.hset(key, "m", b" ".join(fields))


def test_a_claim_for_longer_gets_the_longest_life(core: Core) -> None:
    core.opened("l", "n", lease_seconds=1000)
    assert LONGEST - 5 < left(core) <= LONGEST


def test_a_claim_for_less_gets_what_it_asked_for(core: Core) -> None:
    core.opened("l", "n", lease_seconds=60)
    assert 55 < left(core) <= 60


def test_an_extension_reaches_no_further_than_the_longest_life(core: Core) -> None:
    token, _ = core.opened("l", "n")
    age(core, 70)
    assert core.do(core.extend("l", token, 60, longest=LONGEST)) is Extended.OK
    assert 25 < left(core) <= 30
    age(core, 20)
    assert core.do(core.extend("l", token, 60, longest=LONGEST)) is Extended.OK
    assert 5 < left(core) <= 10


def test_at_the_end_of_its_life_a_lease_is_over(core: Core) -> None:
    token, _ = core.opened("l", "n")
    age(core, LONGEST)
    before = left(core)
    assert core.do(core.extend("l", token, 60, longest=LONGEST)) is Extended.OVER
    assert left(core) <= before, "its deadline stands"


def test_without_a_bound_there_is_none(core: Core) -> None:
    token, _ = core.opened("l", "n")
    age(core, 10_000)
    assert core.do(core.extend("l", token, 600, longest=0)) is Extended.OK
    assert 590 < left(core) <= 600


def test_a_repeated_claim_gives_no_second_life(core: Core) -> None:
    core.opened("l", "n")
    age(core, 70)
    core.opened("l", "n")
    assert 25 < left(core) <= 30


@pytest.mark.parametrize("bounded_later", [True, False])
def test_a_claim_repeated_after_the_end_of_its_life_opens_anew(core: Core, bounded_later: bool) -> None:
    first, _ = core.opened("l", "n")
    age(core, LONGEST + 1)
    if not bounded_later:
        state.expire(core.client, core.queue)
    driven = Driven(core)
    request = ClaimRequest(core.keys.lease_name("l"), b"n", 10, 60, 3600)
    reply = driven.run(claim_operation(core.keys, core.rules, request, clock=driven.clock))
    assert driven.sent == ["claim", "reap", "claim"]
    assert ids(reply) == ["a", "b"]
    assert isinstance(reply, Opened)
    assert b"n:" + reply.opening != first
    assert 55 < left(core) <= 60


def test_a_takeover_begins_a_new_life(core: Core) -> None:
    first, _ = core.opened("l", "n")
    age(core, 95)
    token, reply = core.opened("l", "heir", takeover=first)
    assert reply.takeovers == 1
    assert 55 < left(core) <= 60
    assert core.do(core.extend("l", token, 1000, longest=LONGEST)) is Extended.OK
    assert LONGEST - 5 < left(core) <= LONGEST


def test_a_granted_rest_is_not_taken_for_silence(core: Core) -> None:
    token, _ = core.opened("l", "n")
    age(core, 90)
    core.do(core.extend("l", token, 60, longest=LONGEST))
    held = core.do(core.claim("l", "other", takeover=b"?"))
    assert isinstance(held, Held)
    assert held.silent_seconds < 5
