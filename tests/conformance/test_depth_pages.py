"""Expired leases are counted a page at a time: all of them, each once, whatever moves between two pages."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import redis

from sluicegate.core.call import Call
from sluicegate.core.transitions.depth import Depth, depth_operation
from tests.conformance.driven import Driven
from tests.support import state
from tests.support.core_calls import Core
from tests.support.waiting import wait_until


@pytest.fixture
def core(client: redis.Redis) -> Core:
    return Core(client)


def leases(core: Core, sizes: list[int], *, same_deadline: bool = False) -> list[bytes]:
    """So many expired leases of so many messages, in the order of their deadlines."""
    names = []
    for number, size in enumerate(sizes):
        core.do(core.publish(f"b{number}", *(f"{number}.{at}" for at in range(size))))
        core.do(core.claim(f"l{number}", "n", limit=size))
        names.append(core.keys.lease_name(f"l{number}"))
    state.expire(core.client, core.queue)
    deadline = core.client.zscore(core.keys.leases, names[0])
    assert deadline is not None
    before = [0 if same_deadline else 100 - at for at in range(len(names))]
    core.client.zadd(core.keys.leases, {name: deadline - ms for name, ms in zip(names, before, strict=True)})
    return names


class Between(Driven):
    """Drives a depth, and does something before its call of a number."""

    def __init__(self, core: Core, doing: dict[int, Callable[[], object]]) -> None:
        super().__init__(core)
        self.doing = doing

    def depth(self, page_size: int = 2) -> Depth:
        return self.run(depth_operation(self.core.keys, page_size=page_size))

    def _answer(self, step: object) -> object:
        if isinstance(step, Call) and len(self.sent) in self.doing:
            self.doing[len(self.sent)]()
        return super()._answer(step)


@pytest.mark.parametrize("same_deadline", [False, True])
@pytest.mark.parametrize(("count", "calls"), [(0, 1), (1, 2), (2, 2), (3, 3), (4, 3), (5, 4)])
def test_all_expired_leases_are_counted_a_page_a_call(core: Core, count: int, calls: int, same_deadline: bool) -> None:
    if count:
        leases(core, [2] * count, same_deadline=same_deadline)
    driven = Between(core, {})
    counted = driven.depth()
    assert (counted.expired, counted.in_flight, counted.leases) == (2 * count, 2 * count, count)
    assert driven.sent == ["depth"] * calls


def test_leases_that_live_are_not_counted(core: Core) -> None:
    names = leases(core, [1, 2, 4, 8])
    core.client.zadd(core.keys.leases, {names[2]: 2**45})
    assert Between(core, {}).depth().expired == 1 + 2 + 8


@pytest.mark.parametrize("where", [0, 2, 4])
def test_the_oldest_message_may_be_in_any_expired_lease(core: Core, where: int) -> None:
    names = leases(core, [1] * 5)
    key = core.keys.lease(names[where])
    packed = core.client.hget(key, "m").split(b" ")
    packed[7] = b"%d" % (int(packed[7]) - 3_600_000)
    core.client.hset(key, "m", b" ".join(packed))
    assert (Between(core, {}).depth().oldest_ready_age_seconds or 0) >= 3600


def test_a_lease_that_is_extended_between_two_pages_is_passed_by_and_the_next_one_is_not(core: Core) -> None:
    names = leases(core, [1, 2, 4, 8, 16])

    def extend() -> None:  # the last of the first page, behind which the next one begins
        core.client.zadd(core.keys.leases, {names[1]: 2**45})

    assert Between(core, {1: extend}).depth().expired == 1 + 4 + 8 + 16


@pytest.mark.parametrize("same_deadline", [False, True])
@pytest.mark.parametrize("page", [1, 2])
def test_what_is_reaped_after_it_was_counted_is_counted_once(core: Core, page: int, same_deadline: bool) -> None:
    names = leases(core, [1, 2, 4, 8, 16], same_deadline=same_deadline)
    ordered = core.client.zrange(core.keys.leases, 0, -1)

    def reap() -> None:
        for number in (0, 1):
            core.do(core.reap(ordered[number].decode()))

    counted = Between(core, {page + 1: reap}).depth()
    assert counted.expired + counted.returned == sum((1, 2, 4, 8, 16))
    assert Between(core, {}).depth().returned == sum(2 ** names.index(name) for name in ordered[:2])


def test_leases_that_expire_while_it_counts_are_left_to_the_next_count(core: Core) -> None:
    """Otherwise a busy queue might never be counted to the end."""
    leases(core, [1, 2, 4])

    def now_ms() -> int:
        seconds, us = core.client.time()
        return int(seconds * 1000 + us // 1000)

    def expire() -> None:
        began = now_ms()
        core.do(core.publish("late", "x"))
        core.do(core.claim("late", "n", limit=1, maintain=False))
        wait_until(lambda: now_ms() > began, "a millisecond is over")
        core.client.zadd(core.keys.leases, {core.keys.lease_name("late"): now_ms()})

    driven = Between(core, {1: expire})
    assert driven.depth().expired == 1 + 2 + 4
    assert driven.sent == ["depth"] * 3
    assert Between(core, {}).depth().expired == 1 + 2 + 4 + 1


@pytest.mark.parametrize(
    "packed", [b"", b"junk", b"t:u 1 2 3 4 99999999999999999999 6 7 8", b"t:u 9 9 0 3 3 9 99999999999999999999 0"]
)
def test_a_damaged_lease_is_ready_and_says_nothing_absurd(bare_client: redis.Redis, packed: bytes) -> None:
    """The gate must open for it: a claim is what brings its messages back."""
    core = Core(bare_client)
    leases(core, [3, 2])
    bare_client.hset(core.keys.lease(b"l0"), "m", packed)
    counted = Between(core, {}).depth()
    assert 2 + 3 <= counted.expired <= 2 + 4
    assert counted.oldest_ready_age_seconds is not None
    assert 0 <= counted.oldest_ready_age_seconds < 60


def test_a_lease_whose_hash_is_gone_holds_nothing(core: Core) -> None:
    leases(core, [1, 2, 4])
    core.client.zadd(core.keys.leases, {b"gone": 1})
    assert Between(core, {}).depth().expired == 1 + 2 + 4
    core.client.zrem(core.keys.leases, b"gone")
