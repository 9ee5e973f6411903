"""Waiting for messages ends at once with a wake-up, and sends nothing until then."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from typing import Any

import pytest
import redis

from sluicegate import Lease, LeaseState, RedisGateway, RedisMessageQueue
from sluicegate.core.transitions.promote import promote_call
from sluicegate.core.transitions.reap import reap_call
from tests.support import state
from tests.support.flavours import Flavour
from tests.support.servers import RedisServer
from tests.support.waiting import AT_ONCE_SECONDS, wait_until

MakeQueue = Callable[..., RedisMessageQueue]
LONG = 60.0


@pytest.fixture(autouse=True)
def _long_sleeps(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever is not woken sleeps for long, so that no bound here depends on how busy the machine is."""
    monkeypatch.setattr("sluicegate.core.transitions.claim._MAX_SLEEP_SECONDS", LONG)


@pytest.fixture
def queue(make_queue: MakeQueue) -> RedisMessageQueue:
    """Return a queue, or a group that exists, so that publishes know whom to wake."""
    made = make_queue()
    made.depth()
    return made


@contextmanager
def waiting(
    client: redis.Redis, claim: Callable[[], Lease], waiters: int = 1, *, before: int = 0
) -> Iterator[list[Future[Lease]]]:
    """Start threads that claim and wait; all of them wait for a wake-up when the block begins."""
    with ThreadPoolExecutor(waiters) as pool:
        futures = [pool.submit(claim) for _ in range(waiters)]
        wait_until(lambda: client.info("clients")["blocked_clients"] == before + waiters, "all are asleep")
        yield futures


def tokens(client: redis.Redis) -> list[bytes]:
    found: list[bytes] = client.lrange(state.keys_of(client, "orders").wakeup, 0, -1)
    return found


def test_a_publish_wakes_a_waiting_claim_at_once(queue: RedisMessageQueue, client: redis.Redis) -> None:
    late = []
    for _ in range(5):
        with waiting(client, lambda: queue.claim(wait_seconds=LONG)) as (claimed,):
            published = time.monotonic()
            queue.publish("a")
            claimed.result(AT_ONCE_SECONDS).ack()
            late.append(time.monotonic() - published)
    assert min(late) < 0.5, f"woken after {late}"


@pytest.mark.parametrize("how", ["nack", "release", "reap", "promote", "late lease"])
def test_whatever_makes_a_message_claimable_wakes(queue: RedisMessageQueue, client: redis.Redis, how: str) -> None:
    queue.publish("a")
    lease = queue.claim()
    if how == "promote":
        lease.nack(delay_seconds=1000)
    client.delete(queue.session.keys.wakeup)
    with waiting(client, lambda: queue.claim(wait_seconds=LONG)) as (claimed,):
        match how:
            case "nack":
                lease.nack()
            case "release":
                lease.release()
            case "reap":
                state.expire(client, "orders")
                RedisGateway(redis_client=client).execute(
                    reap_call(queue.session.keys, queue.session.rules, lease._batch.claim.request.name)
                )
            case "promote":
                state.fall_due(client, "orders")
                RedisGateway(redis_client=client).execute(promote_call(queue.session.keys))
            case "late lease":
                state.expire(client, "orders")
                queue.publish("b")
        assert claimed.result(AT_ONCE_SECONDS).messages[0].text() == "a"


def test_a_message_wakes_when_it_falls_due(queue: RedisMessageQueue) -> None:
    queue.publish("a")
    lease = queue.claim()
    begun = time.monotonic()
    lease.nack(delay_seconds=0.3)
    assert queue.claim(wait_seconds=LONG).messages[0].text() == "a"
    assert 0.3 <= time.monotonic() - begun < AT_ONCE_SECONDS


def test_a_sooner_due_time_is_noticed_by_who_sleeps_already(queue: RedisMessageQueue, client: redis.Redis) -> None:
    queue.publish("a")
    lease = queue.claim()
    with waiting(client, lambda: queue.claim(wait_seconds=LONG)) as (claimed,):
        lease.nack(delay_seconds=0.1)
        assert claimed.result(AT_ONCE_SECONDS).messages[0].text() == "a"


def test_a_message_wakes_when_its_holder_goes_silent(queue: RedisMessageQueue) -> None:
    queue.publish("a")
    queue.claim(lease_seconds=0.3)
    asked = time.monotonic()
    assert queue.claim(wait_seconds=LONG).messages[0].delivery_count == 2
    assert time.monotonic() - asked < AT_ONCE_SECONDS


def test_one_publish_wakes_as_many_as_it_has_work_for(
    make_queue: MakeQueue, client: redis.Redis, server: RedisServer
) -> None:
    queue = make_queue()
    with waiting(client, lambda: queue.claim(wait_seconds=LONG), waiters=6) as claims:
        queue.publish_many("abcdef")
        assert sorted(claimed.result(AT_ONCE_SECONDS).messages[0].text() for claimed in claims) == list("abcdef")
    assert tokens(client) in ([], [b"1"])


def test_the_bell_holds_one_token_and_a_spare_one(queue: RedisMessageQueue, client: redis.Redis) -> None:
    for letter in "abc":
        queue.publish(letter)
    assert tokens(client) == [b"1", b"2"]
    queue.claim(10).release()
    assert tokens(client) == [b"1", b"2"]


@pytest.mark.parametrize("taken", [b"1", b"2"])
def test_the_token_that_was_taken_is_put_back(queue: RedisMessageQueue, client: redis.Redis, taken: bytes) -> None:
    queue.publish("a")
    client.lrem(queue.session.keys.wakeup, 0, taken)
    queue.publish("b")
    assert tokens(client) == [b"1", b"2"]


def test_a_claim_that_leaves_some_behind_rings(queue: RedisMessageQueue, client: redis.Redis) -> None:
    queue.publish_many("ab")
    client.delete(queue.session.keys.wakeup)
    queue.claim(1)
    assert tokens(client) == [b"1", b"2"]
    client.delete(queue.session.keys.wakeup)
    queue.claim(1)
    assert tokens(client) == []


@pytest.mark.parametrize("finds", ["the last message", "nothing"])
def test_a_claim_that_leaves_nothing_behind_takes_the_spare_token_back(
    queue: RedisMessageQueue, client: redis.Redis, finds: str
) -> None:
    """Otherwise each message would wake its consumer once more, for nothing."""
    queue.publish("a")
    if finds == "nothing":
        client.delete(queue.session.keys.pending)
    queue.claim()
    assert tokens(client) == [b"1"]


def test_a_taker_that_dies_delays_nobody(client: redis.Redis, server: RedisServer) -> None:
    """It was woken first and never claims; the others sleep on."""
    queue = RedisMessageQueue("orders", client=client)
    late = []
    for _ in range(5):
        client.delete(queue.session.keys.wakeup)
        with server.client() as taker, ThreadPoolExecutor(1) as doomed:
            taken = doomed.submit(taker.blpop, [queue.session.keys.wakeup], LONG)
            wait_until(lambda: client.info("clients")["blocked_clients"] == 1, "it is the first to be woken")
            with waiting(client, lambda: queue.claim(wait_seconds=LONG), waiters=3, before=1) as claims:
                published = time.monotonic()
                queue.publish("a")
                assert taken.result(LONG) is not None
                assert wait(claims, AT_ONCE_SECONDS, FIRST_COMPLETED).done
                late.append(time.monotonic() - published)
                queue.publish_many("bc")  # for those who sleep on
                for claim in claims:
                    claim.result(LONG).ack()
    assert min(late) < 1, f"woken after {late}"


def test_waiting_does_not_poll(queue: RedisMessageQueue, client: redis.Redis) -> None:
    queue.depth()
    client.config_resetstat()
    asked = time.monotonic()
    assert queue.claim(wait_seconds=1).state is LeaseState.EMPTY
    assert 1 <= time.monotonic() - asked < AT_ONCE_SECONDS
    stats = client.info("commandstats")
    assert stats["cmdstat_evalsha"]["calls"] <= 3
    assert stats["cmdstat_blpop"]["calls"] <= 2


def test_nothing_waits_unless_told(queue: RedisMessageQueue, client: redis.Redis) -> None:
    client.config_resetstat()
    assert not queue.claim()
    assert "cmdstat_blpop" not in client.info("commandstats")


def test_a_deadline_less_than_a_millisecond_away_is_kept(queue: RedisMessageQueue) -> None:
    """An old server takes a timeout under one millisecond for none at all."""
    asked = time.monotonic()
    for _ in range(5):
        assert not queue.claim(wait_seconds=0.0004)
    assert time.monotonic() - asked < AT_ONCE_SECONDS


def test_who_waits_on_a_paused_queue_is_told_so(queue: RedisMessageQueue, client: redis.Redis) -> None:
    queue.publish("a")
    client.hset(queue.session.keys.counters, "paused", "1")
    assert queue.claim(wait_seconds=0.1).state is LeaseState.PAUSED


def test_only_the_last_answer_of_a_waiting_claim_is_remembered(queue: RedisMessageQueue, client: redis.Redis) -> None:
    claim = _claim(queue, wait_seconds=LONG, lease_id="run-1", remember_empty=True)
    with waiting(client, claim) as (claimed,):
        assert client.exists(queue.session.keys.closed(b"run-1")) == 0
        queue.publish("a")
        assert claimed.result(AT_ONCE_SECONDS).messages[0].text() == "a"
    assert queue.claim(wait_seconds=0.05, lease_id="run-2", remember_empty=True).state is LeaseState.EMPTY
    assert client.exists(queue.session.keys.closed(b"run-2")) == 1


def test_a_lost_connection_only_ends_the_sleep(queue: RedisMessageQueue, client: redis.Redis) -> None:
    with waiting(client, lambda: queue.claim(wait_seconds=LONG)) as (claimed,):
        for other in client.client_list():
            if "b" in other["flags"]:
                client.client_kill_filter(_id=other["id"])
        wait_until(lambda: client.info("clients")["blocked_clients"] == 1, "asleep again")
        queue.publish("a")
        assert claimed.result(AT_ONCE_SECONDS).messages[0].text() == "a"


def test_process_message_waits_for_its_interval(make_queue: MakeQueue, client: redis.Redis, flavour: Flavour) -> None:
    queue = make_queue(message_wait_interval_seconds=LONG)
    got: list[Any] = []

    def consume() -> None:
        with queue.process_message() as payload:
            got.append(payload)

    consumer = threading.Thread(target=consume)
    consumer.start()
    wait_until(lambda: client.info("clients")["blocked_clients"] == 1, "asleep")
    queue.publish("a")
    consumer.join(AT_ONCE_SECONDS)
    assert got == [flavour.shown(b"a")]


def _claim(queue: RedisMessageQueue, **options: Any) -> Callable[[], Lease]:
    return lambda: queue.claim(**options)
