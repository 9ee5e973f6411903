"""`lease.lost`: true as soon as another consumer may have the messages, by the holder's own clock alone."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import redis

from sluicegate import Lease, RedisMessageQueue
from sluicegate.core.call import Call
from sluicegate.errors import LeaseLostError
from tests.support import state
from tests.support.flavours import synchronous

MakeQueue = Callable[..., RedisMessageQueue]
LIFE, MOMENT = 60.0, 0.001


class Clock:
    """The holder's clock; it moves when a test says so, and while a chosen script is under way."""

    def __init__(self) -> None:
        self.now = 1000.0
        self._slow: dict[str, float] = {}

    def __call__(self) -> float:
        return self.now

    def slow_down(self, queue: RedisMessageQueue, script: str, seconds: float, monkeypatch: pytest.MonkeyPatch) -> None:
        """Let every call of a script take so long."""
        execute = queue.session.runner.gateway.execute

        def slow(call: Call[Any], **options: Any) -> Any:
            if call.script.name == script:
                self.now += seconds
            return execute(call, **options)

        monkeypatch.setattr(queue.session.runner.gateway, "execute", slow)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    for module in ("_lease_base", "_lease_operations", "consumer", "asyncio.consumer"):
        monkeypatch.setattr(f"sluicegate.{module}.elapsed_clock", made)
    return made


@pytest.fixture
def queue(make_queue: MakeQueue, clock: Clock) -> RedisMessageQueue:
    made = make_queue(visibility_timeout_seconds=LIFE)
    made.publish_many("ab")
    made.depth()  # creates the group, if it is one
    return made


def assert_lost_after(lease: Lease, clock: Clock, seconds: float) -> None:
    clock.now += seconds - MOMENT
    assert not lease.lost, "its life is not over"
    clock.now += 2 * MOMENT
    assert lease.lost, "its life is over"


@pytest.mark.parametrize("wait_seconds", [0, 5])
def test_it_is_lost_once_its_life_is_over(queue: RedisMessageQueue, clock: Clock, wait_seconds: float) -> None:
    lease = queue.claim(wait_seconds=wait_seconds)
    assert_lost_after(lease, clock, LIFE)
    assert lease._batch.is_held, "it may still be settled, while nobody has taken it back"
    lease.ack()
    assert not lease.lost, "the verdict stands"


def test_its_own_life_counts(queue: RedisMessageQueue, clock: Clock) -> None:
    assert_lost_after(queue.claim(lease_seconds=7), clock, 7)


@pytest.mark.parametrize("wait_seconds", [0, 5])
def test_its_life_begins_before_the_answer_comes(
    queue: RedisMessageQueue, clock: Clock, wait_seconds: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock.slow_down(queue, "claim", 20, monkeypatch)
    assert_lost_after(queue.claim(wait_seconds=wait_seconds), clock, LIFE - 20)


def test_a_wait_does_not_shorten_its_life(make_queue: MakeQueue, clock: Clock, client: redis.Redis) -> None:
    """Woken after 50 s, it has been leased for none of them."""
    queue = make_queue(visibility_timeout_seconds=LIFE)
    publisher = synchronous(queue, client)
    queue.depth()  # creates the group, if it is one
    wait = queue.session.runner.gateway.wait

    def late(*arguments: Any) -> Any:
        clock.now += 50
        publisher.publish("a")
        return wait(*arguments)

    queue.session.runner.gateway.wait = late  # type: ignore[method-assign]
    assert_lost_after(queue.claim(wait_seconds=100), clock, LIFE)


@pytest.mark.parametrize("seconds", [None, 30])
def test_an_extension_renews_it(queue: RedisMessageQueue, clock: Clock, seconds: float | None) -> None:
    lease = queue.claim()
    clock.now += 50
    lease.extend(seconds)
    assert_lost_after(lease, clock, seconds or LIFE)


def test_an_extension_counts_from_when_it_was_asked_for(
    queue: RedisMessageQueue, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    lease = queue.claim()
    clock.slow_down(queue, "extend", 20, monkeypatch)
    lease.extend()
    assert_lost_after(lease, clock, LIFE - 20)


def test_a_verdict_for_some_renews_nothing(queue: RedisMessageQueue, clock: Clock) -> None:
    lease = queue.claim(2)
    clock.now += 50
    lease.ack(lease.messages[0])
    assert_lost_after(lease, clock, LIFE - 50)


def test_its_longest_life_ends_whatever_renews_it(make_queue: MakeQueue, clock: Clock) -> None:
    queue = make_queue(visibility_timeout_seconds=LIFE, max_lease_seconds=100)
    queue.publish("a")
    lease = queue.claim()
    clock.now += 50
    lease.extend()
    assert_lost_after(lease, clock, 50)


def test_a_refusal_is_believed_at_once(queue: RedisMessageQueue, clock: Clock, client: redis.Redis) -> None:
    lease = queue.claim(2)
    assert not lease.lost
    state.expire(client, "orders")
    queue.claim().release()
    with pytest.raises(LeaseLostError):
        lease.extend()
    assert lease.lost


def test_what_holds_nothing_is_never_lost(queue: RedisMessageQueue, clock: Clock) -> None:
    settled = queue.claim(2)
    settled.ack()
    empty = queue.claim()
    clock.now += 10 * LIFE
    assert not settled.lost
    assert not empty.lost
