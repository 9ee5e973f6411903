"""What is wrong in a queue is found, whoever put it there, and nothing is changed."""

from __future__ import annotations

import threading
import time

import pytest
import redis

from sluicegate import RedisGateway, RedisMessageQueue, RedisStreamQueue
from sluicegate.core.keys import QueueKeys
from sluicegate.doctor import examine, worst
from sluicegate.place import Place
from sluicegate.survey import read_snapshots
from tests.doctor.conftest import ORDERS, Examine, of, one
from tests.support import damage
from tests.support.core_calls import Core
from tests.support.waiting import wait_until

DAMAGE = damage.matrix()
# One of each kind of damage, with what the examination says about it.
SHOWN = {
    "pending: text": "1 of 3 values looked at in pending are no messages",
    "returned: text": "in returned are no messages",
    "delayed: text": "in delayed are no messages",
    "counters: text": "totals that are no numbers",
    "no counters": "is behind messages that wait",
    "no dead_records": "2 of 2 dead letters looked at have no record",
    "no dead": "2 records belong to no dead letter",
    "no lease": "1 lease without content",
    "lease without a deadline": "1 lease without a deadline",
    "lease without m": "1 lease damaged",
    "lease: garbage": "1 lease damaged",
    "lease without a slot": "1 lease with a wrong count of messages",
    "no leases": "1 lease without a deadline",
}


@pytest.fixture
def queue(bare_client: redis.Redis) -> RedisMessageQueue:
    return RedisMessageQueue("orders", client=bare_client)


@pytest.mark.parametrize("name", SHOWN)
def test_damage_is_found_and_said(look: Examine, bare_client: redis.Redis, name: str) -> None:
    core = Core(bare_client)
    damage.busy(core)
    assert of(look(), "stored") == []
    DAMAGE[name](core)
    before = _dump(bare_client)
    found = of(look(), "stored")
    assert SHOWN[name] in " ".join(finding.what for finding in found)
    assert _dump(bare_client) == before, "the examination changes nothing"


@pytest.mark.full
@pytest.mark.parametrize("name", DAMAGE)
def test_no_damage_stops_the_examination(look: Examine, bare_client: redis.Redis, name: str) -> None:
    core = Core(bare_client)
    damage.busy(core)
    DAMAGE[name](core)
    assert of(look(), "reachable") == []


@pytest.mark.parametrize("key", ["pending", "returned", "delayed", "leases", "dead", "dead_records", "counters"])
def test_a_key_of_another_type_is_named(look: Examine, bare_client: redis.Redis, key: str) -> None:
    core = Core(bare_client)
    damage.busy(core)
    bare_client.set(getattr(core.keys, key), "text")
    finding = of(look([Place(core.keys.name)]), "stored", "error")[0]
    assert f"{key} holds a value of another type" in finding.what


def test_messages_in_flight_are_compared_with_the_leases(
    look: Examine, queue: RedisMessageQueue, bare_client: redis.Redis
) -> None:
    queue.publish_many(["a", "b", "c"])
    leases = [queue.claim(limit=1), queue.claim(limit=2)]
    assert of(look(), "stored") == []
    bare_client.hincrby(QueueKeys("orders").counters, "in_flight", 4)
    finding = one(look(), "stored")
    assert finding.severity == "error"
    assert "7 messages in flight by its count, 3 in its leases" in finding.what
    queue.repair()
    assert of(look(), "stored") == []
    assert [lease.ack() is not None for lease in leases]


def test_leases_that_change_meanwhile_are_no_damage(gateway: RedisGateway, queue: RedisMessageQueue) -> None:
    """A consumer claims and acks all the time, while the examination compares the count with the leases."""
    queue.publish_many(map(str, range(3000)))
    done = threading.Event()

    def consume() -> None:
        while not done.is_set() and (lease := queue.claim(limit=2)):
            lease.ack()

    consumer = threading.Thread(target=consume)
    consumer.start()
    try:
        findings = [finding for _ in range(5) for finding in examine(gateway, ORDERS, sample_seconds=0)]
    finally:
        done.set()
        consumer.join()
    assert of(findings, "stored", "error", "warning") == []


def test_expired_leases_that_no_consumer_takes_back(look: Examine, queue: RedisMessageQueue) -> None:
    queue.publish("a")
    queue.claim(lease_seconds=0.01)
    wait_until(lambda: queue.depth().expired == 1, "the lease expires")
    finding = one(look(), "expired")
    assert finding.severity == "note"
    assert "1 lease with 1 message expired" in finding.what


def test_a_lease_that_expired_long_ago_is_a_warning(
    look: Examine, queue: RedisMessageQueue, bare_client: redis.Redis
) -> None:
    queue.publish("a")
    queue.claim(lease_id="l")
    bare_client.zadd(QueueKeys("orders").leases, {"l": time.time() * 1000 - 600_000})
    finding = one(look(), "expired")
    assert finding.severity == "warning"
    assert "10 min ago" in finding.what


def test_paused_dead_and_set_aside(look: Examine, queue: RedisMessageQueue, bare_client: redis.Redis) -> None:
    queue.publish_many(["a", "b"])
    queue.claim().bury(error=ValueError("x"))
    queue.pause()
    findings = look()
    assert "paused, with 1 message ready" in one(findings, "paused", "warning").what
    assert "1 dead letter, one of them in the last hour" in one(findings, "dead", "warning").what
    keys = QueueKeys("orders")
    bare_client.zadd(keys.dead, {bare_client.zrange(keys.dead, 0, 0)[0]: 1000})
    assert one(look(), "dead").severity == "note", "an old one"
    queue.resume()
    bare_client.rpush(keys.pending, damage.NEWER, "garbage")
    while queue.claim(limit=1):
        pass
    findings = look()
    assert "1 message of a newer version" in one(findings, "set_aside", "warning").what
    assert "1 value of another program" in one(findings, "foreign", "warning").what


def test_what_a_deleted_queue_left_behind(look: Examine, queue: RedisMessageQueue, bare_client: redis.Redis) -> None:
    queue.publish_many(["a", "b"])
    queue.claim(limit=1)
    keys = QueueKeys("orders")
    bare_client.delete(keys.pending, keys.counters)
    stream = RedisStreamQueue("events", client=bare_client)
    stream.publish("a")
    with stream.group("billing", start="beginning").claim(1) as lease:
        lease.bury()
    bare_client.delete("sluicegate:{events}:stream", "sluicegate:{events}:stream:counters")
    bare_client.delete("sluicegate:{events}:group:billing:counters")
    found = of(look(), "orphans")
    assert {finding.where: finding.what.split(" are left")[0] for finding in found} == {
        "queue 'orders'": "lease:*, leases",
        "group 'billing' of stream 'events'": "dead, dead:records",
    }
    assert of(look(ORDERS), "orphans") == [], "nothing is known of others where places are named"


def test_the_forecast_explains_its_sum(bare_client: redis.Redis, gateway: RedisGateway) -> None:
    queue = RedisMessageQueue(
        "orders", client=bare_client, get_deduplication_key=str, deduplication_window_seconds=36000
    )
    queue.publish_many(map(str, range(1000)))

    def publish_more(seconds: float) -> None:
        queue.publish_many(map(str, range(1000, 2000)))
        time.sleep(max(0.05, seconds))

    bare_client.config_set("maxmemory", "64mb")
    found = examine(gateway, sample_seconds=0.2, pause=publish_more)
    (finding,) = [each for each in of(found, "forecast", "warning") if each.where == gateway.server]
    assert "about 1,000 markers of " in finding.what
    assert "publishes/s x 20 h" in finding.what
    assert "of maxmemory are free" in finding.what


def test_a_growing_backlog_is_extrapolated(bare_client: redis.Redis, gateway: RedisGateway) -> None:
    queue = RedisMessageQueue("orders", client=bare_client)
    queue.publish("x" * 1000)

    def publish_more(seconds: float) -> None:
        queue.publish_many(["x" * 1000] * 500)
        time.sleep(max(0.05, seconds))

    bare_client.config_set("maxmemory", "64mb")
    finding = one(examine(gateway, sample_seconds=0.2, pause=publish_more), "forecast", "warning")
    assert finding.where == "queue 'orders'"
    assert "the backlog grew by" in finding.what
    assert "max_pending_length" in finding.advice


def test_groups_are_examined_as_queues_are(look: Examine, bare_client: redis.Redis) -> None:
    stream = RedisStreamQueue("events", client=bare_client)
    stream.publish_many(["a", "b"])
    group = stream.group("billing", start="beginning")
    group.claim(1)
    assert worst([*of(look(), "stored"), *of(look(), "readable")]) == "ok"
    bare_client.set("sluicegate:{events}:group:billing:delayed", "text")
    finding = one(look(), "stored", "error")
    assert finding.where == "group 'billing' of stream 'events'"


def test_an_examination_of_many_queues_is_quick_and_costs_few_commands(
    gateway: RedisGateway, bare_client: redis.Redis
) -> None:
    places = [Place(f"q{number}") for number in range(200)]
    for place in places:
        RedisMessageQueue(place.name, client=bare_client).publish("a")
    examine(gateway, ORDERS, sample_seconds=0)
    read_snapshots(gateway, places)
    before = bare_client.info("commandstats")
    start = time.perf_counter()
    examine(gateway, places, sample_seconds=0)
    seconds = time.perf_counter() - start
    after = bare_client.info("commandstats")
    calls = after["cmdstat_evalsha"]["calls"] - before["cmdstat_evalsha"]["calls"]
    assert calls <= 200 * 3 + 60
    assert seconds < 5


def _dump(client: redis.Redis) -> dict[bytes, bytes]:
    """Return all keys with their contents, without those that expire."""
    return {key: client.dump(key) for key in client.scan_iter() if client.pttl(key) == -1}
