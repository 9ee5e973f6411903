"""With `strict_envelope_decoding`, foreign values stay in the queue, are reported, and never block it."""

from __future__ import annotations

import pytest
import redis

from sluicegate.core.transitions.claim import ClaimReply, ClaimRequest, Empty, Foreign, claim_operation
from sluicegate.errors import MalformedStoredMessageError
from tests.conformance.driven import Driven
from tests.support import state
from tests.support.core_calls import Core, ids, verdict

JUNK = [b"secret-1", b"secret-2", b"secret-3"]


@pytest.fixture
def core(client: redis.Redis) -> Core:
    return Core(client, strict=True)


def claim(driven: Driven, lease: str = "l", limit: int = 10, **options: float) -> ClaimReply:
    core = driven.core
    request = ClaimRequest(core.keys.lease_name(lease), b"n", limit, 60, 3600)
    return driven.run(
        claim_operation(core.keys, core.rules, request, clock=driven.clock, emits_events=True, **options)  # type: ignore[arg-type]
    )


def waiting(core: Core) -> list[bytes]:
    return state.contents(core.client, core.queue).pending


def test_messages_behind_foreign_values_are_claimed(core: Core) -> None:
    core.client.rpush(core.keys.pending, *JUNK)  # they stand before the messages
    core.do(core.publish("b", *"abc"))
    _, reply = core.opened("l", "n", 2)
    assert ids(reply) == ["a", "b"]
    assert reply.buried == 0
    assert waiting(core)[0].endswith(b"c")
    assert waiting(core)[1:] == list(reversed(JUNK))
    assert not core.client.exists(core.keys.dead)


def test_nothing_but_foreign_values_is_an_error_that_does_not_show_them(core: Core) -> None:
    core.client.lpush(core.keys.pending, *JUNK)
    driven = Driven(core)
    for _ in range(2):
        with pytest.raises(MalformedStoredMessageError) as caught:
            claim(driven)
        assert "'orders' holds 3 stored values that are no Sluicegate messages" in str(caught.value)
        assert "secret" not in str(caught.value)
    assert driven.sent == ["claim", "claim"]
    assert driven.events == [("claim", "refused", 3)] * 2
    assert waiting(core) == JUNK
    assert not core.client.exists(core.keys.dead, core.keys.dead_records, core.keys.leases)


def test_foreign_values_wake_nobody(core: Core) -> None:
    core.client.lpush(core.keys.pending, *JUNK)
    core.do(core.claim("l", "n"))
    assert core.client.llen(core.keys.wakeup) == 0


def test_a_waiting_claim_waits_on_and_tells_at_its_deadline(core: Core) -> None:
    core.client.lpush(core.keys.pending, *JUNK)
    driven = Driven(core)
    with pytest.raises(MalformedStoredMessageError, match="3 stored values"):
        claim(driven, wait_seconds=5)
    assert (driven.sent, driven.waits) == (["claim"], [5])


def test_a_waiting_claim_takes_what_comes(core: Core) -> None:
    core.client.lpush(core.keys.pending, *JUNK)

    def ring(_: object) -> bool:
        core.do(core.publish("b", "a"))
        return True

    assert ids(claim(Driven(core, ring), wait_seconds=5)) == ["a"]


def test_one_claim_goes_over_the_list_once(core: Core) -> None:
    core.client.lpush(core.keys.pending, *[b"junk-%d" % number for number in range(50)])
    assert core.do(core.claim("l", "n", 5)) == Foreign(50, more=False)


def test_many_foreign_values_are_passed_in_bounded_steps(core: Core) -> None:
    core.client.rpush(core.keys.pending, *[b"junk-%d" % number for number in range(3000)])
    core.do(core.publish("b", "a"))
    first = core.do(core.claim("l", "n", 1))
    assert isinstance(first, Foreign)
    assert first.more
    assert 1000 <= first.count <= 1100
    driven = Driven(core)
    assert ids(claim(driven, limit=1)) == ["a"]
    assert driven.sent == ["claim"] * 2


def test_a_claim_gives_up_after_ten_calls(core: Core) -> None:
    core.client.rpush(core.keys.pending, *[b"junk-%d" % number for number in range(20_000)])
    driven = Driven(core)
    with pytest.raises(MalformedStoredMessageError):
        claim(driven, limit=1)
    assert driven.sent == ["claim"] * 10
    assert core.client.llen(core.keys.pending) == 20_000


def test_a_foreign_value_among_what_came_back(core: Core) -> None:
    core.client.zadd(core.keys.returned, {b"junk": 0})
    core.do(core.publish("b", "a"))
    token, reply = core.opened("l", "n")
    assert ids(reply) == ["a"]
    assert waiting(core) == [b"junk"]
    core.do(core.settle("l", token, verdict("ack", "1")))


def test_an_empty_answer_over_foreign_values_is_not_remembered(core: Core) -> None:
    core.client.lpush(core.keys.pending, *JUNK)
    assert core.do(core.claim("l", "n", remember_empty=True)) == Foreign(3)
    core.client.delete(core.keys.pending)
    core.do(core.publish("b", "a"))
    assert ids(core.opened("l", "n")[1]) == ["a"]


def test_a_full_redis_does_not_stop_it(core: Core) -> None:
    core.client.rpush(core.keys.pending, *JUNK)
    core.do(core.publish("b", "a"))
    core.client.config_set("maxmemory", "1")
    assert ids(core.opened("l", "n")[1]) == ["a"]
    core.client.config_set("maxmemory", "0")
    assert sorted(waiting(core)) == JUNK


def test_without_it_they_are_buried(client: redis.Redis) -> None:
    core = Core(client)
    client.lpush(core.keys.pending, *JUNK)
    driven = Driven(core)
    assert claim(driven) == Empty(None, buried=3)
    assert driven.events == [("bury", "success", 3), ("claim", "empty", 0)]
    assert client.zcard(core.keys.dead) == 3
