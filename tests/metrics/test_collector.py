"""A scrape says what Redis knows of queues, streams and groups, whichever process did the work, and never fails."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest
import redis
from prometheus_client import CollectorRegistry, generate_latest

from sluicegate import RedisGateway, RedisMessageQueue
from sluicegate.errors import ConfigurationError
from sluicegate.jobs import RedisJobQueue
from sluicegate.metrics import QueueCollector, render
from sluicegate.place import Place
from sluicegate.streams import RedisStreamQueue
from tests.metrics.conftest import scrape
from tests.support import state
from tests.support.servers import RedisServer, free_port


@pytest.fixture
def gateway(server: RedisServer) -> Iterator[RedisGateway]:
    made = RedisGateway(url=server.url)
    yield made
    made.close()


def test_a_queue_with_messages_in_every_state(client: redis.Redis, gateway: RedisGateway) -> None:
    queue = RedisMessageQueue("orders", client=client, get_deduplication_key="id", max_delivery_count=1)
    queue.publish_many({"id": number} for number in range(10))
    queue.publish_many({"id": number} for number in (0, 1))
    queue.publish({"id": 99}, delay_seconds=1000)
    queue.claim(2).ack()
    queue.claim(1).release()
    queue.claim(1).nack()
    queue.claim(3, lease_id="held")
    read = scrape(QueueCollector(gateway=gateway, places=["orders"]))
    states = {
        name: read("messages", queue="orders", state=name)
        for name in ("pending", "returned", "delayed", "in_flight", "dead", "set_aside")
    }
    assert states == {"pending": 4, "returned": 0, "delayed": 1, "in_flight": 3, "dead": 1, "set_aside": 0}
    assert read("ready_messages", queue="orders") == 4
    assert read("leases", queue="orders") == 1
    assert read("paused", queue="orders") == 0
    totals = {
        name: read(f"{name}_total", queue="orders")
        for name in (
            "published_messages", "duplicate_messages", "claimed_messages", "acked_messages", "released_messages",
            "buried_messages", "completed_messages", "failed_deliveries",
        )
    }  # fmt: skip
    assert totals == {
        "published_messages": 11,
        "duplicate_messages": 2,
        "claimed_messages": 7,
        "acked_messages": 2,
        "released_messages": 1,
        "buried_messages": 1,
        "completed_messages": 2,
        "failed_deliveries": 1,
    }


def test_what_only_a_claim_would_bring_back_is_ready(client: redis.Redis, gateway: RedisGateway) -> None:
    queue = RedisMessageQueue("orders", client=client)
    queue.publish_many("abc")
    queue.claim(2)
    state.expire(client, "orders")
    queue.pause()
    read = scrape(QueueCollector(gateway=gateway, places=["orders"]))
    assert (read("ready_messages", queue="orders"), read("expired_messages", queue="orders")) == (3, 2)
    assert read("paused", queue="orders") == 1
    age = read("oldest_ready_age_seconds", queue="orders")
    assert age is not None
    assert 0 <= age < 60


def test_an_idle_queue_has_an_age_of_zero(client: redis.Redis, gateway: RedisGateway) -> None:
    RedisMessageQueue("orders", client=client).publish("a")
    RedisMessageQueue("orders", client=client).claim().ack()
    read = scrape(QueueCollector(gateway=gateway, places=["orders"]))
    assert (read("oldest_ready_age_seconds", queue="orders"), read("ready_messages", queue="orders")) == (0, 0)


def test_streams_and_their_groups(client: redis.Redis, gateway: RedisGateway) -> None:
    stream = RedisStreamQueue("events", client=client)
    stream.publish_many("abcde")
    group = stream.group("billing", start="beginning")
    group.claim(2).ack()
    group.claim(1, lease_id="held")
    with stream.replay(from_id="0-1"):
        places = [Place("events", stream=True), Place("events", stream=True, group="billing")]
        read = scrape(QueueCollector(gateway=gateway, places=places))
        _, text = render(QueueCollector(gateway=gateway))
    assert read("stream_messages", stream="events") == 5
    assert read("published_messages_total", stream="events") == 5
    assert read("stream_replays", stream="events") == 1
    billing = {"stream": "events", "group": "billing"}
    assert read("messages", state="pending", **billing) == 2
    assert read("messages", state="in_flight", **billing) == 1
    assert read("ready_messages", **billing) == 2
    assert read("acked_messages_total", **billing) == 2
    assert read("group_foreign_consumers", **billing) == 0
    assert "replay-" not in text.decode(), "each replay's group has a name of its own: labels without bound"


def test_consumers_of_other_libraries(client: redis.Redis, gateway: RedisGateway) -> None:
    stream = RedisStreamQueue("events", client=client)
    stream.publish_many("abc")
    stream.group("audit").create("beginning")
    client.xreadgroup("audit", "somebody", {stream.key.stream: ">"}, count=2)
    read = scrape(QueueCollector(gateway=gateway, places=[Place("events", stream=True)]))
    audit = {"stream": "events", "group": "audit"}
    assert read("group_foreign_pending_messages", **audit) == 2
    assert read("group_foreign_consumers", **audit) == 1


def test_everything_is_found_and_counted_by_kind(client: redis.Redis, gateway: RedisGateway) -> None:
    RedisMessageQueue("orders", client=client).publish("a")
    RedisJobQueue("mails", client=client).enqueue_many([{"to": "a"}, {"to": "b"}], kind="mail")
    stream = RedisStreamQueue("events", client=client)
    stream.publish("a")
    stream.group("billing").create("beginning")
    read = scrape(QueueCollector(gateway=gateway))
    assert {kind: read("places", kind=kind) for kind in ("queue", "jobs", "stream", "group")} == {
        "queue": 1, "jobs": 1, "stream": 1, "group": 1,
    }  # fmt: skip
    assert read("ready_messages", queue="mails") == 2
    assert read("ready_messages", stream="events", group="billing") == 1
    assert read("discovery_up") == 1


def test_places_beyond_the_bound_are_counted(client: redis.Redis, gateway: RedisGateway) -> None:
    for name in "abc":
        RedisMessageQueue(name, client=client).publish("a")
    read = scrape(QueueCollector(gateway=gateway, max_places=2))
    assert (read("places", kind="queue"), read("places_left_out")) == (2, 1)
    assert [read("ready_messages", queue=name) for name in "abc"] == [1, 1, None]


def test_the_work_of_other_processes_counts(client: redis.Redis, server: RedisServer, gateway: RedisGateway) -> None:
    collector = QueueCollector(gateway=gateway, places=["orders"])
    program = f"""
from sluicegate import RedisMessageQueue
with RedisMessageQueue("orders", url={server.url!r}) as queue:
    queue.publish_many("abc")
    queue.claim(2).ack()
"""
    for _ in range(2):
        subprocess.run([sys.executable, "-c", program], check=True, env=dict(os.environ))
    read = scrape(collector)
    assert (read("published_messages_total", queue="orders"), read("acked_messages_total", queue="orders")) == (6, 4)


def test_a_place_that_cannot_be_read_is_a_metric(bare_client: redis.Redis, gateway: RedisGateway) -> None:
    RedisMessageQueue("orders", client=bare_client).publish("a")
    bare_client.set("sluicegate:{broken}:pending", "junk")
    places: list[str | Place] = ["orders", "broken", Place("events", stream=True, group="nobody")]
    read = scrape(QueueCollector(gateway=gateway, places=places))
    assert read("up", server=gateway.server) == 1
    assert read("ready_messages", queue="orders") == 1
    assert read("place_error", queue="broken", error="WrongKeyTypeError") == 1
    assert read("place_error", stream="events", group="nobody", error="GroupNotFoundError") == 1
    assert read("ready_messages", queue="broken") is None


@pytest.mark.parametrize("places", [["orders"], None], ids=["configured", "found"])
def test_a_server_that_is_away_is_a_metric(places: list[str] | None) -> None:
    collector = QueueCollector(url=f"redis://127.0.0.1:{free_port()}", places=places)
    try:
        read = scrape(collector)
        (up,) = [read("up", server=collector._gateway.server)]
        assert up == 0
        assert read("discovery_up") == (None if places else 0)
    finally:
        collector.close()


def test_a_server_that_comes_back_is_read_again(own_server: RedisServer) -> None:
    with RedisMessageQueue("orders", url=own_server.url) as queue:
        queue.publish("a")
    collector = QueueCollector(url=own_server.url)
    assert scrape(collector)("ready_messages", queue="orders") == 1
    own_server.stop()
    gone = scrape(collector)
    assert gone("up", server=collector._gateway.server) == 0
    assert gone("ready_messages", queue="orders") is None, "a value of the past would look like the present"
    own_server.start()
    assert scrape(collector)("ready_messages", queue="orders") == 1
    collector.close()


def test_registering_asks_redis_nothing(client: redis.Redis, server: RedisServer) -> None:
    registry = CollectorRegistry(auto_describe=True)
    collector = QueueCollector(url=f"redis://127.0.0.1:{free_port()}")
    registry.register(collector)
    assert b"sluicegate_up" in generate_latest(registry)
    collector.close()


def test_names_are_escaped_as_prometheus_wants(client: redis.Redis, gateway: RedisGateway) -> None:
    name = 'a"b\\c\nd é{x}'
    RedisMessageQueue(name, client=client).publish("a")
    assert scrape(QueueCollector(gateway=gateway))("ready_messages", queue=name) == 1


def test_a_scrape_shows_no_payload_key_id_or_error(client: redis.Redis, gateway: RedisGateway) -> None:
    queue = RedisMessageQueue("orders", client=client, get_deduplication_key="id", max_delivery_count=1)
    queue.publish({"id": "secret-key", "text": "secret-payload"}, headers={"who": "secret-header"})
    lease = queue.claim(lease_id="secret-lease")
    message = lease.messages[0].id
    lease.nack(error=ValueError("secret-error"))
    _, text = render(QueueCollector(gateway=gateway))
    assert b"secret" not in text
    assert message.encode() not in text


def test_a_place_named_twice_is_read_once(client: redis.Redis, gateway: RedisGateway) -> None:
    RedisMessageQueue("orders", client=client).publish("a")
    _, text = render(QueueCollector(gateway=gateway, places=["orders", Place("orders")]))
    assert text.count(b'sluicegate_ready_messages{group="",queue="orders",stream=""}') == 1


def test_a_scrape_of_200_queues_is_one_write_and_few_commands(client: redis.Redis, gateway: RedisGateway) -> None:
    names = [f"queue-{number:03}" for number in range(200)]
    for name in names:
        RedisMessageQueue(name, client=client).publish("a")
    collector = QueueCollector(gateway=gateway)
    scrape(collector)  # finds the places, and loads the script
    client.config_resetstat()
    read = scrape(collector)
    info: Any = client.info("commandstats")
    calls = {name.removeprefix("cmdstat_"): of["calls"] for name, of in info.items() if "config" not in name}
    sent = sum(calls.get(name, 0) for name in ("evalsha", "eval", "scan", "ping", "script|load", "hello", "info"))
    assert sent <= 250, calls
    assert calls["evalsha"] == 200
    assert [read("ready_messages", queue=name) for name in names] == [1] * 200


@pytest.mark.parametrize("options", [{}, {"url": "redis://x", "gateway": object()}])
def test_exactly_one_of_url_and_gateway(options: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError, match="exactly one of url and gateway"):
        QueueCollector(**options)
