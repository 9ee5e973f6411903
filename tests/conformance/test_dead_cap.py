"""A cap on dead letters: the oldest go, nothing else does, and every one that goes is counted and told."""

from __future__ import annotations

import pytest
import redis

from sluicegate.core.entry import split_entry
from sluicegate.core.rules import QueueRules
from sluicegate.core.transitions.claim import Empty, Opened
from sluicegate.core.transitions.settle import Settled
from tests.support import state
from tests.support.core_calls import Core, verdict


def dead(core: Core) -> list[str]:
    return [name.decode() for name in core.client.zrange(core.keys.dead, 0, -1)]


def dropped(core: Core) -> int:
    return state.counters(core.client, core.queue).get("dead_dropped", 0)


def capped(client: redis.Redis, max_dead_length: int, *names: str) -> Core:
    core = Core(client, max_dead_length=max_dead_length)
    core.do(core.publish("b", *names))
    return core


def test_the_oldest_dead_letters_are_dropped(client: redis.Redis) -> None:
    core = capped(client, 2, *"abcdef")
    token, opened = core.opened("l", "n")
    names = [split_entry(entry)[0] for entry in opened.entries]
    reported = []
    for slot in "123456":
        call = core.settle("l", token, verdict("bury", slot))
        reported.append(core.do(call).dropped)
        client.zincrby(core.keys.dead, -1000 * (7 - int(slot)), names[int(slot) - 1])  # each is older than the next
        assert core.do(call).dropped == 0, "a repeat drops nothing"
    assert reported == [0, 0, 1, 1, 1, 1]
    assert dead(core) == [name.decode() for name in names[4:]]
    assert dropped(core) == 4


def test_a_batch_beyond_the_cap(client: redis.Redis) -> None:
    core = capped(client, 2, *"abcdef")
    token, _ = core.opened("l", "n")
    assert core.do(core.settle("l", token, verdict("bury", "1-6"))) == Settled([], 0, [1, 2, 3, 4, 5, 6], 4)
    assert len(dead(core)) == 2
    assert dropped(core) == 4


def test_no_cap_drops_nothing(client: redis.Redis) -> None:
    core = capped(client, 0, *"abcdef")
    token, _ = core.opened("l", "n")
    assert core.do(core.settle("l", token, verdict("bury", "1-6"))).dropped == 0
    assert len(dead(core)) == 6


def test_what_is_not_buried_drops_nothing(client: redis.Redis) -> None:
    core = capped(client, 1, *"abcdef")
    token, _ = core.opened("l", "n")
    core.rules = QueueRules(max_delivery_count=10)
    core.do(core.settle("l", token, verdict("bury", "1-3")))
    core.rules = QueueRules(max_delivery_count=10, max_dead_length=1)
    assert core.do(core.settle("l", token, verdict("ack", "4"), verdict("nack", "5"))).dropped == 0
    assert len(dead(core)) == 3


def test_a_lowered_cap_is_reached_in_bounded_steps(client: redis.Redis) -> None:
    core = capped(client, 5, *"abc")
    token, opened = core.opened("l", "n")
    entry = opened.entries[0]
    client.zadd(core.keys.dead, {f"old-{number}": number for number in range(2500)})
    client.hset(
        core.keys.dead_records, mapping={f"old-{number}": b"1\x1f\x1f\x1f\x1f" + entry for number in range(2500)}
    )
    reported = [core.do(core.settle("l", token, verdict("bury", slot))).dropped for slot in "123"]
    assert reported == [1001, 1001, 496]
    assert len(dead(core)) == client.hlen(core.keys.dead_records) == 5
    assert dropped(core) == 2498
    client.delete(core.keys.dead, core.keys.dead_records)  # the copies of one entry were in two places


def test_a_reap_keeps_to_the_cap(client: redis.Redis) -> None:
    core = capped(client, 1, *"ab")
    core.rules = QueueRules(max_delivery_count=1, max_dead_length=1)
    reported = []
    for lease in ("l", "m"):
        core.opened(lease, "n", 1)
        state.expire(client, core.queue, lease)
        reported.append(core.do(core.reap(lease)))
    assert [(step.buried, step.dropped) for step in reported] == [(1, 0), (1, 1)]
    assert dropped(core) == 1


@pytest.mark.parametrize("behind", [True, False], ids=["with a message", "alone"])
def test_a_claim_keeps_to_the_cap(client: redis.Redis, behind: bool) -> None:
    core = Core(client, max_dead_length=2)
    core.add_junk(*(f"junk{number}" for number in range(5)))
    if behind:
        core.do(core.publish("b", "a"))
    reply = core.do(core.claim("l", "n"))
    assert isinstance(reply, Opened if behind else Empty)
    assert (reply.buried, reply.dropped) == (5, 3)
    assert len(dead(core)) == client.hlen(core.keys.dead_records) == 2
    assert dropped(core) == 3


def test_a_full_redis_drops_too(client: redis.Redis) -> None:
    core = capped(client, 1, *"abc")
    token, _ = core.opened("l", "n")
    client.config_set("maxmemory", "1")
    assert core.do(core.settle("l", token, verdict("bury", "1-3"))).dropped == 2
    client.config_set("maxmemory", "0")
