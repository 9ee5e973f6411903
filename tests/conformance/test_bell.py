"""Waiting for messages: woken by the bell at once, and quiet until then."""

from __future__ import annotations

import statistics
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import pytest
import redis

from sluicegate import Lease, LeaseState, RedisGateway, RedisMessageQueue
from sluicegate.core import calls
from tests.conformance import state
from tests.conformance.flavours import Flavour
from tests.conformance.servers import RedisServer
from tests.conformance.waiting import wait_until

MakeQueue = Callable[..., RedisMessageQueue]
LONG = 20.0


@contextmanager
def waiting(client: redis.Redis, claim: Callable[[], Lease], waiters: int = 1) -> Iterator[list[Future[Lease]]]:
    """Threads that claim and wait, all of them asleep on the bell when the block begins."""
    with ThreadPoolExecutor(waiters) as pool:
        futures = [pool.submit(claim) for _ in range(waiters)]
        wait_until(lambda: client.info("clients")["blocked_clients"] == waiters, "all are asleep")
        yield futures


def test_a_publish_wakes_a_waiting_claim_at_once(queue: RedisMessageQueue, client: redis.Redis) -> None:
    late = []
    for _ in range(5):
        with waiting(client, lambda: queue.claim(wait_seconds=LONG)) as (claimed,):
            published = time.monotonic()
            queue.publish("a")
            claimed.result(LONG).ack()
            late.append(time.monotonic() - published)
    assert statistics.median(late) < 0.1, f"woken after {late}"


@pytest.mark.parametrize("how", ["nack", "release", "reap", "promote", "late lease"])
def test_whatever_makes_a_message_claimable_wakes(queue: RedisMessageQueue, client: redis.Redis, how: str) -> None:
    queue.publish("a")
    lease = queue.claim()
    if how == "promote":
        lease.nack(delay_seconds=1000)
    client.delete(queue._keys.bell)
    with waiting(client, lambda: queue.claim(wait_seconds=LONG)) as (claimed,):
        match how:
            case "nack":
                lease.nack()
            case "release":
                lease.release()
            case "reap":
                state.expire(client, "orders")
                RedisGateway(redis_client=client).execute(calls.reap(queue._keys, queue._terms, lease._request.name))
            case "promote":
                state.fall_due(client, "orders")
                RedisGateway(redis_client=client).execute(calls.promote(queue._keys))
            case "late lease":
                state.expire(client, "orders")
                queue.publish("b")
        assert claimed.result(5).messages[0].text() == "a"


def test_a_message_wakes_when_it_falls_due(queue: RedisMessageQueue) -> None:
    queue.publish("a")
    queue.claim().nack(delay_seconds=0.3)
    asked = time.monotonic()
    assert queue.claim(wait_seconds=LONG).messages[0].text() == "a"
    assert 0.25 < time.monotonic() - asked < 3


def test_a_sooner_due_time_is_noticed_by_who_sleeps_already(queue: RedisMessageQueue, client: redis.Redis) -> None:
    queue.publish("a")
    lease = queue.claim()
    with waiting(client, lambda: queue.claim(wait_seconds=LONG)) as (claimed,):
        lease.nack(delay_seconds=0.1)
        assert claimed.result(5).messages[0].text() == "a"


def test_a_message_wakes_when_its_holder_goes_silent(queue: RedisMessageQueue) -> None:
    queue.publish("a")
    queue.claim(lease_seconds=0.3)
    asked = time.monotonic()
    assert queue.claim(wait_seconds=LONG).messages[0].delivery_count == 2
    assert time.monotonic() - asked < 3


def test_one_publish_wakes_as_many_as_it_has_work_for(
    make_queue: MakeQueue, client: redis.Redis, server: RedisServer
) -> None:
    queue = make_queue()
    with waiting(client, lambda: queue.claim(wait_seconds=LONG), waiters=6) as claims:
        queue.publish_many("abcdef")
        assert sorted(claimed.result(5).messages[0].text() for claimed in claims) == list("abcdef")
    assert client.llen(queue._keys.bell) <= 1


def test_the_bell_holds_one_token(queue: RedisMessageQueue, client: redis.Redis) -> None:
    for letter in "abc":
        queue.publish(letter)
    assert client.llen(queue._keys.bell) == 1
    queue.claim(10).release()
    assert client.llen(queue._keys.bell) == 1


def test_a_claim_that_leaves_some_behind_rings(queue: RedisMessageQueue, client: redis.Redis) -> None:
    queue.publish_many("ab")
    client.delete(queue._keys.bell)
    queue.claim(1)
    assert client.llen(queue._keys.bell) == 1
    client.delete(queue._keys.bell)
    queue.claim(1)
    assert client.llen(queue._keys.bell) == 0


def test_waiting_does_not_poll(queue: RedisMessageQueue, client: redis.Redis) -> None:
    queue.depth()
    client.config_resetstat()
    asked = time.monotonic()
    assert queue.claim(wait_seconds=1).state is LeaseState.EMPTY
    assert 1 <= time.monotonic() - asked < 3
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
    assert time.monotonic() - asked < 5


def test_who_waits_on_a_paused_queue_is_told_so(queue: RedisMessageQueue, client: redis.Redis) -> None:
    queue.publish("a")
    client.hset(queue._keys.counters, "paused", "1")
    assert queue.claim(wait_seconds=0.1).state is LeaseState.PAUSED


def test_only_the_last_answer_of_a_waiting_claim_is_remembered(queue: RedisMessageQueue, client: redis.Redis) -> None:
    claim = _claim(queue, wait_seconds=LONG, lease_id="run-1", remember_empty=True)
    with waiting(client, claim) as (claimed,):
        assert client.exists(queue._keys.closed(b"run-1")) == 0
        queue.publish("a")
        assert claimed.result(5).messages[0].text() == "a"
    assert queue.claim(wait_seconds=0.05, lease_id="run-2", remember_empty=True).state is LeaseState.EMPTY
    assert client.exists(queue._keys.closed(b"run-2")) == 1


def test_a_lost_connection_only_ends_the_sleep(queue: RedisMessageQueue, client: redis.Redis) -> None:
    with waiting(client, lambda: queue.claim(wait_seconds=LONG)) as (claimed,):
        for other in client.client_list():
            if "b" in other["flags"]:
                client.client_kill_filter(_id=other["id"])
        wait_until(lambda: client.info("clients")["blocked_clients"] == 1, "asleep again")
        queue.publish("a")
        assert claimed.result(5).messages[0].text() == "a"


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
    consumer.join(5)
    assert got == [flavour.shown(b"a")]


def _claim(queue: RedisMessageQueue, **options: Any) -> Callable[[], Lease]:
    return lambda: queue.claim(**options)
