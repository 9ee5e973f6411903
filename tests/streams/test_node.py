"""Node's ioredis publishes to a stream and consumes from it, beside Sluicegate's own consumers."""

from __future__ import annotations

import time

import pytest
import redis

from sluicegate.streams import ConsumerGroup, RedisStreamQueue
from tests.streams.node import Node
from tests.support.flavours import MakeStream
from tests.support.servers import RedisServer


@pytest.fixture
def stream(make_stream: MakeStream) -> RedisStreamQueue:
    return make_stream()


@pytest.fixture
def node(server: RedisServer, stream: RedisStreamQueue) -> Node:
    return Node(str(server.socket), stream.key.stream)


def orders(*numbers: int) -> list[dict[str, object]]:
    return [{"type": "order_created", "id": number, "note": "ä"} for number in numbers]


def numbers(group: ConsumerGroup, limit: int = 100) -> list[int]:
    """Claim and ack once; return the numbers of the orders."""
    with group.claim(limit) as lease:
        return [message.json()["id"] for message in lease]


def test_a_group_reads_what_node_publishes(stream: RedisStreamQueue, node: Node) -> None:
    group = stream.group("billing", start="beginning")
    first = node("enqueue", data=orders(1)[0])
    ids = [first, *node("enqueueBatch", messages=orders(2, 3))]
    with group.claim(10) as lease:
        assert [message.id for message in lease.messages] == ids
        assert [message.json() for message in lease.messages] == orders(1, 2, 3)
        assert lease.messages[0].headers.keys() == {"created_at", "attempts"}
    info = node("info")
    assert info["length"] == 3
    assert [(one["name"], one["lag"], one["pending"]) for one in info["groups"]] == [("billing", 0, 0)]


def test_a_waiting_claim_notices_what_node_publishes(stream: RedisStreamQueue, node: Node) -> None:
    group = stream.group("billing", start="end")
    assert numbers(group) == []
    node("enqueue", data=orders(7)[0])
    began = time.monotonic()
    with group.claim(1, wait_seconds=20) as lease:
        assert [message.json()["id"] for message in lease] == [7]
    assert time.monotonic() - began < 10


def test_node_reads_what_is_published_here(make_stream: MakeStream, node: Node) -> None:
    stream = make_stream(get_deduplication_key="id")
    ids = stream.publish_many(orders(1, 2, 1), headers={"trace": "t-1"}).ids[:2]
    assert node("ensureGroup", group="node") is True
    found = node("read", group="node", consumer="n1", count=10)
    assert [(one["id"], one["data"]) for one in found] == list(zip(ids, orders(1, 2), strict=True))
    assert [(one["headers"], one["key"]) for one in found] == [({"trace": "t-1"}, "1"), ({"trace": "t-1"}, "2")]
    assert node("acknowledge", group="node", consumer="n1", ids=ids) == 2
    assert node("pending", group="node", consumer="n1", count=10) == []


def test_both_consume_from_one_group_and_see_each_other(stream: RedisStreamQueue, node: Node) -> None:
    group = stream.group("shared", start="beginning", consumer="python")
    stream.publish_many(orders(*range(6)))
    lease = group.claim(2)
    held = [one["id"] for one in node("read", group="shared", consumer="node-1", count=3)]
    seen = {(one.id, one.consumer, one.foreign) for one in group.pending()}
    assert seen == {
        *((message.id, "python", False) for message in lease.messages),
        *((name, "node-1", True) for name in held),
    }
    summary = group.pending_summary()
    assert (summary.count, summary.by_consumer) == (5, {"python": 2, "node-1": 3})
    assert [row[:2] for row in node("pending", group="shared", consumer="node-1", count=10)] == [
        [name, "node-1"] for name in held
    ]
    mine = [message.id for message in lease.messages]
    assert node("acknowledge", group="shared", consumer="node-1", ids=[*held, *mine]) == 3, "a lease is out of reach"
    assert [one.consumer for one in group.pending()] == ["python", "python"]
    lease.ack()
    assert numbers(group) == [5]
    assert group.pending() == []


def test_what_a_dead_node_held_comes_back_here(stream: RedisStreamQueue, node: Node, client: redis.Redis) -> None:
    group = stream.group("shared", start="beginning", visibility_timeout_seconds=0.2)
    ids = stream.publish_many(orders(1, 2)).ids
    group.create("beginning")
    assert len(node("read", group="shared", consumer="dead", count=2)) == 2
    claimed = node("claimStale", group="shared", consumer="heir", minIdleMs=0, count=10)
    assert [one["id"] for one in claimed] == ids, "Node's own way to take over is left as it is"
    assert group.remove_consumer("heir") == 2
    found = []
    while lease := group.claim(10):  # tried messages come in smaller batches
        found += [(message.id, message.delivery_count >= 2) for message in lease.messages]
        lease.ack()
    assert found == [(name, True) for name in ids]
    assert client.xpending(stream.key.stream, "shared")["pending"] == 0


def test_a_trim_spares_what_node_holds(make_stream: MakeStream, node: Node) -> None:
    stream = make_stream(max_length=1)
    ids = stream.publish_many(orders(*range(50))).ids
    node("ensureGroup", group="node")
    assert len(node("read", group="node", consumer="n", count=50)) == 50
    node("acknowledge", group="node", consumer="n", ids=ids[:20] + ids[21:])
    assert (stream.trim().length, stream.info().first_id) == (30, ids[20])
    node("acknowledge", group="node", consumer="n", ids=[ids[20]])
    assert stream.trim().length == 1
