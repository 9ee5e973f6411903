"""A plain stream moves into one of ours with its groups, or into a queue."""

from __future__ import annotations

import pytest
import redis

from sluicegate import RedisGateway, RedisMessageQueue
from sluicegate.errors import ConfigurationError
from sluicegate.migrating import Migration, StreamSource
from sluicegate.streams import RedisStreamQueue

KEY = "sluicegate:{events}:stream"


def move(gateway: RedisGateway, source: StreamSource | None = None, **options: object) -> Migration:
    options = {"in_flight": "return", **options}
    return Migration(source or StreamSource("old"), "events", source_gateway=gateway, **options)  # type: ignore[arg-type]


def add(client: redis.Redis, count: int = 8, **fields: str) -> None:
    for number in range(1, count + 1):
        client.xadd("old", {"data": str(number), **fields}, id=f"{number}-1")


def test_entries_keep_their_ids_and_groups_their_positions(
    client: redis.Redis, gateway: RedisGateway, small_pages: None
) -> None:
    add(client)
    client.xgroup_create("old", "billing", "0")
    client.xgroup_create("old", "audit", "$")
    client.xreadgroup("billing", "one", {"old": ">"}, count=5)
    client.xack("old", "billing", "1-1", "2-1", "4-1")

    report = move(gateway).run()

    assert (report.moved, client.xlen("old")) == (8, 0)
    assert [entry_id for entry_id, _ in client.xrange(KEY)] == [f"{n}-1".encode() for n in range(1, 9)]
    held = client.xpending_range(KEY, "billing", "-", "+", 10)
    assert [(one["message_id"], one["consumer"], one["times_delivered"]) for one in held] == [
        (b"3-1", b"one", 1),
        (b"5-1", b"one", 1),
    ]
    stream = RedisStreamQueue("events", client=client)
    group = stream.group("billing", visibility_timeout_seconds=0.001)
    got = []
    while lease := group.claim(10):
        got += [message.text() for message in lease]
        lease.ack()
    assert sorted(got) == ["3", "5", "6", "7", "8"]
    assert not stream.group("audit").claim(1)
    stream.publish("new")
    assert [message.text() for message in stream.group("audit").claim(5)] == ["new"]


def test_fields_are_read_as_a_group_reads_them(client: redis.Redis, gateway: RedisGateway) -> None:
    client.xadd("old", {"a": "1", "b": "2"}, id="1-1")
    client.xadd("old", {"data": "d", "key": "not ours"}, id="2-1")
    client.xadd("old", {"data": b"\xff", "created": "now"}, id="3-1")
    client.xadd("old", {str(number): "" for number in range(3000)}, id="4-1")
    move(gateway).run()
    messages = RedisStreamQueue("events", client=client).group("g", start="0").claim(10).messages
    assert messages[0].json() == {"a": "1", "b": "2"}
    assert (messages[1].text(), messages[1].headers, messages[1].deduplication_key) == ("d", {"key": "not ours"}, None)
    assert (messages[2].payload, messages[2].headers) == (b"\xff", {"created": "now"})
    assert len(messages[3].json()) == 3000


def test_a_payload_field_can_be_named(client: redis.Redis, gateway: RedisGateway) -> None:
    client.xadd("old", {"body": "x", "trace": "t"}, id="1-1")
    move(gateway, StreamSource("old", payload_field="body"), into="queue").run()
    (message,) = RedisMessageQueue("events", client=client).peek()
    assert (message.text(), message.headers) == ("x", {"trace": "t"})


def test_what_a_group_has_not_finished_moves_into_a_queue(
    client: redis.Redis, gateway: RedisGateway, small_pages: None
) -> None:
    add(client)
    client.xgroup_create("old", "billing", "0")
    client.xreadgroup("billing", "one", {"old": ">"}, count=5)
    client.xack("old", "billing", "1-1", "2-1", "4-1")
    source = StreamSource("old", group="billing")
    assert move(gateway, source).plan().total in (5, 8)  # Redis 6.2 does not know what a group has not read

    assert move(gateway, source).run().moved == 5

    queue = RedisMessageQueue("events", client=client)
    waiting = [*queue.peek(state="returned"), *queue.peek()]
    assert [(message.text(), message.delivery_count) for message in waiting] == [
        ("3", 1),
        ("5", 1),
        ("6", 0),
        ("7", 0),
        ("8", 0),
    ]
    assert [entry_id for entry_id, _ in client.xrange("old")] == [b"1-1", b"2-1", b"4-1"]


def test_entries_stay_for_other_groups(client: redis.Redis, gateway: RedisGateway, small_pages: None) -> None:
    add(client)
    for group in ("billing", "audit"):
        client.xgroup_create("old", group, "0")
    client.xreadgroup("billing", "one", {"old": ">"}, count=2)
    source = StreamSource("old", group="billing")
    assert move(gateway, source).run().moved == 8
    assert client.xlen("old") == 8
    groups = {group["name"]: group for group in client.xinfo_groups("old")}
    assert groups[b"billing"]["last-delivered-id"] == b"8-1"
    assert (groups[b"billing"]["pending"], groups[b"audit"]["last-delivered-id"]) == (0, b"0-0")
    assert move(gateway, source).run().moved == 0
    client.xadd("old", {"data": "9"}, id="9-1")
    assert move(gateway, source).run().moved == 1


def test_a_stream_with_later_ids_is_refused(client: redis.Redis, gateway: RedisGateway) -> None:
    add(client)
    RedisStreamQueue("events", client=client).publish("now")
    with pytest.raises(ConfigurationError, match="entries keep their ids, so 1-1 cannot follow"):
        move(gateway).run()
    assert client.xlen("old") == 8


def test_consumers_that_called_recently_stop_the_move(client: redis.Redis, gateway: RedisGateway) -> None:
    add(client)
    client.xgroup_create("old", "billing", "0")
    client.xreadgroup("billing", "one", {"old": ">"}, count=1)
    with pytest.raises(ConfigurationError, match="1 consumers of stream 'old' called within 300 s"):
        move(gateway, in_flight="refuse").run()
    assert move(gateway, in_flight="refuse", live_seconds=0).run().moved == 8


@pytest.mark.parametrize(
    ("source", "problem"),
    [
        (StreamSource("text"), "'text' holds a string, where a stream was expected"),
        (StreamSource("old", group="none"), "stream 'old' has no group 'none'"),
    ],
)
def test_sources_that_cannot_move(
    client: redis.Redis, gateway: RedisGateway, source: StreamSource, problem: str
) -> None:
    client.set("text", "x")
    add(client, 1)
    with pytest.raises(ConfigurationError, match=problem):
        move(gateway, source).run()
    assert move(gateway, StreamSource("nothing")).run().moved == 0
    with pytest.raises(ConfigurationError, match="by one of its groups moves into a queue, not into a stream"):
        move(gateway, StreamSource("old", group="g"), into="stream")
