"""The Arrow table holds exactly what the messages hold."""

from __future__ import annotations

import pyarrow as pa

from sluicegate import RedisMessageQueue
from sluicegate.spark._arrow import to_table
from tests.conformance.servers import RedisServer
from tests.conftest import MakeQueue

SCHEMA = pa.schema(
    [
        pa.field("id", pa.string(), nullable=False),
        ("payload", pa.binary()),
        ("headers", pa.map_(pa.string(), pa.string())),
        ("deduplication_key", pa.string()),
        ("delivery_count", pa.int32()),
        ("sequence", pa.int64()),
        ("enqueued_at", pa.timestamp("us", "UTC")),
    ]
)


def test_columns_equal_the_fields_of_the_messages(server: RedisServer, make_queue: MakeQueue) -> None:
    queue = make_queue(url=server.url, get_deduplication_key="k")
    queue.publish({"k": "a{b}:%\x00ü"}, headers={"trace": "1", "ü": "é"})
    queue.publish_many([{"k": "c", "blob": "x" * 1000}, {"k": "d"}])
    queue.claim(lease_seconds=60).nack()
    messages = [*queue.claim(10), *queue.claim(10)]

    table = to_table(messages)

    assert table.schema.equals(SCHEMA)
    assert table.column("id").to_pylist() == [message.id for message in messages]
    assert table.column("payload").to_pylist() == [message.payload for message in messages]
    assert [dict(items) for items in table.column("headers").to_pylist()] == [{"trace": "1", "ü": "é"}, {}, {}]
    assert table.column("deduplication_key").to_pylist() == ["a{b}:%\x00ü", "c", "d"]
    assert table.column("delivery_count").to_pylist() == [message.delivery_count for message in messages] == [2, 1, 1]
    assert table.column("sequence").to_pylist() == [message.sequence for message in messages] == [1, 2, 3]
    assert table.column("enqueued_at").to_pylist() == [message.enqueued_at for message in messages]


def test_a_message_without_key_has_none(queue: RedisMessageQueue) -> None:
    queue.publish(b"\x00\xff\x1f raw")

    table = to_table(list(queue.claim(10)))

    assert table.column("deduplication_key").to_pylist() == [None]
    assert table.column("payload").to_pylist() == [b"\x00\xff\x1f raw"]


def test_what_a_takeover_adds_to_the_count_is_in_the_table(queue: RedisMessageQueue) -> None:
    queue.publish_many([b"a", b"b"])
    queue.claim(10, lease_id="mine")

    table = to_table(list(queue.claim(10, lease_id="mine", take_over_after_seconds=0)))

    assert table.column("delivery_count").to_pylist() == [2, 2]
