"""Heartbeats on real leases: a block keeps what it works on, and nothing is extended once it is left."""

from __future__ import annotations

import gc
import logging
import weakref
from collections.abc import Callable
from typing import Any

import pytest
import redis

from sluicegate import Lease, RedisMessageQueue
from sluicegate import lease as lease_module
from sluicegate._redis import pools_base
from sluicegate.asyncio.heartbeat import HeartbeatScheduler as AsyncHeartbeatScheduler
from sluicegate.asyncio.heartbeat import scheduler as async_scheduler
from sluicegate.errors import RetryBudgetExhaustedError
from sluicegate.heartbeat import HeartbeatScheduler, scheduler
from tests.support import state
from tests.support.flavours import Blocking, Flavour, Loop
from tests.support.servers import RedisServer
from tests.support.waiting import wait_until

MakeQueue = Callable[..., RedisMessageQueue]


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def beats(flavour: Flavour, loop: Loop, clock: Clock, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return the scheduler of all leases, which sends heartbeats when the test asks for them."""
    if flavour.asyncio:
        from sluicegate.asyncio import lease as async_lease_module

        made: Any = AsyncHeartbeatScheduler(clock)
        monkeypatch.setattr(async_lease_module, "scheduler", lambda: made)
    else:
        made = HeartbeatScheduler(clock)
        monkeypatch.setattr(lease_module, "scheduler", lambda: made)
    monkeypatch.setattr(made._workers, "_set_timer" if flavour.asyncio else "wake", lambda *_: None)
    return Blocking(made, loop) if flavour.asyncio else made


def inner(lease: Any) -> Any:
    """Return the lease behind its synchronous interface."""
    return lease._target if isinstance(lease, Blocking) else lease


def deadline(client: redis.Redis, lease: Lease) -> float:
    return float(client.zscore(lease._session.keys.leases, lease._batch.claim.request.name))


def extended_by_itself(client: redis.Redis, lease: Lease) -> None:
    """Check that the real scheduler extends a lease of 60 s of which a third has passed at the server."""
    shortened = client.zincrby(lease._session.keys.leases, -20_000, lease._batch.claim.request.name)
    wait_until(lambda: deadline(client, lease) > shortened, "a beat extends the lease")


def test_a_block_beats_every_third_of_the_lease(
    queue: RedisMessageQueue, client: redis.Redis, clock: Clock, beats: HeartbeatScheduler
) -> None:
    queue.publish("a")
    with queue.claim(lease_seconds=60) as lease:
        for _ in range(4):
            assert beats.run_once() == 20
            client.zincrby(
                lease._session.keys.leases, -20_000, lease._batch.claim.request.name
            )  # 20 s pass at the server
            before = deadline(client, lease)
            clock.now += 20
            beats.run_once()
            assert deadline(client, lease) >= before + 19_900
    clock.now += 1000
    assert beats.run_once() is None, "no renewal after a block"
    assert not lease.lost


@pytest.mark.parametrize(
    ("interval", "lease_seconds", "first"),
    [(None, 300, 100), (30, 300, 30), (30, 60, 20), (100, 300, 100), (0, 300, None)],
)
def test_the_interval(
    make_queue: MakeQueue, beats: HeartbeatScheduler, interval: float | None, lease_seconds: float, first: float | None
) -> None:
    queue = make_queue(heartbeat_interval_seconds=interval)
    queue.publish("a")
    expected = None if first is None else pytest.approx(first)
    with queue.claim(lease_seconds=lease_seconds):
        assert beats.run_once() == expected
    queue.publish("b")
    lease = queue.claim(lease_seconds=lease_seconds, heartbeat=False)
    lease.start_heartbeat()
    assert beats.run_once() == expected, "started by hand, without an interval of its own"
    lease.start_heartbeat(7)
    assert beats.run_once() == 7, "whoever names an interval gets it"
    lease.stop_heartbeat()


@pytest.mark.parametrize(("interval", "first"), [(None, pytest.approx(100)), (7, 7), (0, None)])
def test_process_message_has_the_heartbeat_of_a_claim(
    make_queue: MakeQueue, beats: HeartbeatScheduler, interval: float | None, first: object
) -> None:
    queue = make_queue(heartbeat_interval_seconds=interval)
    queue.publish("a")
    with queue.process_message():
        assert beats.run_once() == first
    assert beats.run_once() is None, "no renewal after the block"


@pytest.mark.parametrize(("interval", "watched"), [(None, 1), (7, 1), (0, 0)])
def test_process_message_callback_has_the_heartbeat_of_a_claim(
    make_queue: MakeQueue, beats: HeartbeatScheduler, interval: float | None, watched: int
) -> None:
    queue = make_queue(heartbeat_interval_seconds=interval)
    queue.publish("a")
    agenda, seen = inner(beats)._due, list[int]()
    assert queue.process_message_callback(lambda _: seen.append(len(agenda)))
    assert (seen, len(agenda)) == ([watched], 0)


def test_at_most_once_has_nothing_to_extend(make_queue: MakeQueue, beats: HeartbeatScheduler) -> None:
    queue = make_queue(visibility_timeout_seconds=None, max_delivery_count=None)
    queue.publish_many("ab")
    with queue.process_message():
        assert len(inner(beats)._due) == 0
    with queue.claim():
        assert len(inner(beats)._due) == 0


def test_a_handler_slower_than_its_visibility_timeout_handles_its_message_once(
    make_queue: MakeQueue, client: redis.Redis, clock: Clock, beats: HeartbeatScheduler
) -> None:
    queue, other = (make_queue(visibility_timeout_seconds=60, max_delivery_count=2) for _ in range(2))
    queue.publish("a")
    with queue.process_message() as payload:
        (lease,) = client.zrange(queue.key.leases, 0, -1)
        for _ in range(6):  # two timeouts pass, at the server and here
            client.zincrby(queue.key.leases, -20_000, lease)
            clock.now += 20
            beats.run_once()
            assert other.claim().state.value == "empty"
    assert payload is not None
    assert (queue.stats().acked, queue.depth().dead) == (1, 0)


def test_a_heartbeat_can_be_refused(queue: RedisMessageQueue, beats: HeartbeatScheduler) -> None:
    queue.publish("a")
    with queue.claim(heartbeat=False):
        assert beats.run_once() is None


def test_a_block_longer_than_its_lease_keeps_it(make_queue: MakeQueue, client: redis.Redis) -> None:
    queue, other = make_queue(heartbeat_interval_seconds=0.05), make_queue()
    queue.publish_many("ab")
    with queue.claim(2, lease_seconds=60) as lease:
        for _ in range(6):
            extended_by_itself(client, lease)
            assert other.claim().state.value == "empty"
            assert not lease.lost
    assert lease.counts.acked == 2


def test_without_a_heartbeat_it_loses_it(make_queue: MakeQueue) -> None:
    queue, other = make_queue(), make_queue()
    queue.publish("a")
    lease = queue.claim(lease_seconds=0.2)
    assert other.claim(wait_seconds=20).messages[0].text() == "a"
    assert lease.lost


def test_by_hand(queue: RedisMessageQueue, client: redis.Redis, clock: Clock, beats: HeartbeatScheduler) -> None:
    queue.publish("a")
    lease = queue.claim(lease_seconds=60)
    lease.start_heartbeat(5)
    assert beats.run_once() == 5
    lease.start_heartbeat()
    assert beats.run_once() == 5
    lease.stop_heartbeat()
    clock.now += 100
    assert beats.run_once() is None
    queue.claim().start_heartbeat()
    assert beats.run_once() is None, "an empty lease has nothing to extend"


def test_a_lost_lease_is_told_by_its_next_beat(
    queue: RedisMessageQueue,
    client: redis.Redis,
    clock: Clock,
    beats: HeartbeatScheduler,
    caplog: pytest.LogCaptureFixture,
) -> None:
    queue.publish("a")
    lease = queue.claim(lease_seconds=60)
    lease.start_heartbeat()
    state.expire(client, "orders")
    queue.claim()
    assert not lease.lost
    clock.now += 20
    with caplog.at_level(logging.WARNING, "sluicegate"):
        assert beats.run_once() is None
    assert lease.lost
    assert "is lost" in caplog.text


def test_what_its_holder_settled_is_not_lost(
    queue: RedisMessageQueue,
    client: redis.Redis,
    clock: Clock,
    beats: HeartbeatScheduler,
    caplog: pytest.LogCaptureFixture,
) -> None:
    queue.publish_many("ab")
    with caplog.at_level(logging.WARNING, "sluicegate"), queue.claim(2, lease_seconds=60) as lease:
        lease.ack(lease.messages[0])
        clock.now += 20
        assert beats.run_once() == 20
        lease.ack()
        client.config_resetstat()
        clock.now += 20
        assert beats.run_once() is None
        assert "cmdstat_evalsha" not in client.info("commandstats"), "nothing is left to extend"
        assert not lease.lost
    assert caplog.text == ""


def test_a_beat_that_fails_is_tried_again(
    queue: RedisMessageQueue,
    clock: Clock,
    beats: HeartbeatScheduler,
    monkeypatch: pytest.MonkeyPatch,
    client: redis.Redis,
) -> None:
    queue.publish("a")
    lease = queue.claim(lease_seconds=60)
    lease.start_heartbeat()
    clock.now += 20
    with monkeypatch.context() as patch:
        patch.setattr(queue.session.runner.gateway, "execute", _away)
        assert beats.run_once() == 1
        clock.now += 1
        assert beats.run_once() == 1
    client.zincrby(lease._session.keys.leases, -20_000, lease._batch.claim.request.name)
    before = deadline(client, lease)
    clock.now += 1
    assert beats.run_once() == 20
    assert deadline(client, lease) >= before + 19_900
    assert not lease.lost


def _away(*_: object, **__: object) -> None:
    raise RetryBudgetExhaustedError("away")


def test_leases_are_watched_together_until_their_queue_is_closed(
    queue: RedisMessageQueue, flavour: Flavour, loop: Loop
) -> None:
    queue.publish_many("abc")
    leases = [queue.claim(lease_seconds=60) for _ in range(3)]
    for lease in leases:
        lease.start_heartbeat()
    agenda = (loop.run(async_scheduler) if flavour.asyncio else scheduler())._due
    assert [inner(lease)._heartbeat in agenda for lease in leases] == [True] * 3
    queue.close()
    assert [inner(lease)._heartbeat in agenda for lease in leases] == [False] * 3, "a closed queue beats no more"


def test_an_ended_lease_is_forgotten_although_its_beat_was_not_due(
    queue: RedisMessageQueue, beats: HeartbeatScheduler
) -> None:
    queue.publish_many("ab")
    with queue.claim(lease_seconds=30), queue.claim(lease_seconds=3000) as ended:
        gone = weakref.ref(inner(ended))
        ended.ack()
        ended.stop_heartbeat()
        del ended
    gc.collect()
    assert gone() is None
    assert beats.run_once() is None


def test_hundreds_of_leases_are_extended_in_one_round(
    queue: RedisMessageQueue, client: redis.Redis, clock: Clock, beats: HeartbeatScheduler
) -> None:
    queue.publish_many(str(number) for number in range(200))
    leases = [queue.claim(lease_seconds=600) for _ in range(200)]
    for lease in leases:
        lease.start_heartbeat()
    clock.now += 200
    before = dict(client.zrange(queue.key.leases, 0, -1, withscores=True))
    for name in before:
        client.zincrby(queue.key.leases, -200_000, name)
    assert beats.run_once() == 200
    after = dict(client.zrange(queue.key.leases, 0, -1, withscores=True))
    assert len(before) == 200
    assert all(after[name] >= earlier for name, earlier in before.items())
    queue.close()
    clock.now += 1000
    assert beats.run_once() is None


def test_a_server_that_hangs_starves_no_other_queue(
    make_queue: MakeQueue,
    own_server: RedisServer,
    client: redis.Redis,
    flavour: Flavour,
    loop: Loop,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(pools_base, "_SINGLE_TIMEOUT_SECONDS", 100)  # longer than anything here takes
    here, away = make_queue(heartbeat_interval_seconds=0.05), make_queue(url=own_server.url)
    away.publish("a")
    stuck = away.claim(lease_seconds=600)
    here.publish("b")
    agenda = (loop.run(async_scheduler) if flavour.asyncio else scheduler())._due
    with own_server.frozen():
        stuck.start_heartbeat(0.01)
        wait_until(lambda: agenda.under_way(inner(stuck)._heartbeat) is not None, "a beat hangs")
        with here.claim(lease_seconds=60) as lease:
            for _ in range(6):
                extended_by_itself(client, lease)
        assert agenda.under_way(inner(stuck)._heartbeat) is not None, "it hung all the time"
    assert lease.counts.acked == 1
    stuck.ack()
    assert stuck.counts.acked == 1
