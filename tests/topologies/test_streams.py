"""What a stream and its groups do on every way of reaching Redis: all their keys have the slot of the stream's name."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import redis

from sluicegate.core.keys import StreamKeys
from sluicegate.errors import LeaseLostError
from tests.support import access_rights
from tests.support.topologies import AclCluster, AclServer, Topology
from tests.topologies.ways import QueueMaker

STREAM = StreamKeys("orders").stream


@pytest.fixture(autouse=True)
def rights(topology: Topology) -> Iterator[None]:
    """Give the user of a server with minimal permissions those of streams, too."""
    if not isinstance(topology, AclServer | AclCluster):
        yield
        return
    usual = (*access_rights.RULE, *(access_rights.FOR_CLUSTER if isinstance(topology, AclCluster) else ()))
    topology.allow(*usual, *access_rights.FOR_STREAMS)
    yield
    assert topology.refused() <= {"client|setinfo", "info", "hscan", "scan"}
    topology.allow(*usual)


def texts(group: Any, limit: int = 100) -> list[str]:
    """Claim and ack once; return the payloads."""
    with group.claim(limit) as lease:
        return [message.text() for message in lease]


def test_every_group_gets_every_message_once(make: QueueMaker) -> None:
    stream = make.stream(get_deduplication_key=str)
    groups = [stream.group(name, start="beginning") for name in ("billing", "a:{b}")]
    report = stream.publish_many(["a", "b", "a", "c"])
    assert (report.accepted, report.duplicates) == (3, 1)
    assert [texts(group) for group in groups] == [["a", "b", "c"]] * 2
    assert sorted(stream.groups()) == ["a:{b}", "billing"]
    assert [group.depth().ready for group in groups] == [0, 0]


def test_a_message_comes_back_and_dies_in_one_group(make: QueueMaker) -> None:
    stream = make.stream()
    group, other = (stream.group(name, start="beginning", max_delivery_count=2) for name in ("g", "other"))
    stream.publish("a")
    for _ in range(2):
        group.claim().nack()
    assert [message.reason for message in group.peek(state="dead")] == ["max_delivery_count"]
    assert group.redrive().redriven == 1
    assert texts(group) == ["a"]
    assert texts(other) == ["a"]


def test_a_history_is_replayed_and_trimmed(make: QueueMaker) -> None:
    stream = make.stream(max_length=5)
    group = stream.group("g", start="beginning")
    ids = stream.publish_many(str(number) for number in range(20)).ids
    assert len(texts(group, 15)) == 15
    assert (stream.trim().length, stream.trim().held_by) == (5, ())
    assert stream.info().first_id == ids[15]
    with stream.replay(from_id=ids[18]) as again:
        assert texts(again) == ["18", "19"]
    assert stream.cancel([ids[16]]) == [ids[16]]
    assert texts(group) == ["15", "17", "18", "19"]
    assert stream.delete_group("g") is True
    assert stream.groups() == []


def test_other_clients_share_a_group(make: QueueMaker, inside: redis.Redis) -> None:
    stream = make.stream()
    group = stream.group("g", start="beginning", consumer="here")
    stream.publish_many(["a", "b", "c"])
    lease = group.claim(1)
    ((_, entries),) = inside.xreadgroup("g", "there", {STREAM: ">"}, count=1)
    assert {one.consumer for one in group.pending()} == {"here", "there"}
    assert inside.xack(STREAM, "g", entries[0][0]) == 1
    lease.ack()
    assert texts(group) == ["c"]
    inside.xadd(STREAM, {"data": "d"})
    assert texts(group) == ["d"]


def test_what_dead_consumers_held_returns_and_a_group_is_moved_back(make: QueueMaker, inside: redis.Redis) -> None:
    stream = make.stream()
    group = stream.group("g", start="beginning", consumer="here", visibility_timeout_seconds=30)
    ids = stream.publish_many(["a", "b", "c"]).ids
    lease = group.claim(1)
    ((_, entries),) = inside.xreadgroup("g", "there", {STREAM: ">"}, count=1)
    assert group.pending_summary().by_consumer == {"here": 1, "there": 1}
    inside.xclaim(STREAM, "g", "there", 0, [entries[0][0]], idle=60_000, justid=True)
    assert [texts(group), texts(group)] == [["b"], ["c"]], "adopted by a claim, and claimed alone"
    assert group.remove_consumer("here") == 1
    assert texts(group) == ["a"]
    with pytest.raises(LeaseLostError):
        lease.ack()
    assert group.replay(from_id=ids[1]) == ids[2]
    assert group.lag() == 2
    assert texts(group) == ["b", "c"]
