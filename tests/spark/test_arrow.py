"""The Arrow table holds exactly what the messages hold."""

from __future__ import annotations

from datetime import UTC, datetime

import pandas as pd
import pyarrow as pa
import pytest

from sluicegate import Message, RedisMessageQueue
from sluicegate.errors import MalformedStoredMessageError
from sluicegate.tables.arrow import message_arrays, to_pandas, to_table
from tests.support.flavours import MakeQueue
from tests.support.servers import RedisServer

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


def test_every_number_of_the_prefix_is_read_to_its_last_digit() -> None:
    entries = [
        b"1%012x%012x%03x%xid\x1f\x1f\x1f" % numbers
        for numbers in ((1, 0, 0, 0), (2**48 - 1, 1_767_225_600_123, 4095, 15))
    ]
    entries.append(entries[1].upper().replace(b"ID", b"id"))
    messages = [Message(entry, slot, 1) for slot, entry in enumerate(entries)]

    arrays = message_arrays(messages, ("sequence", "delivery_count", "enqueued_at"))

    assert arrays["sequence"].to_pylist() == [message.sequence for message in messages] == [1, 2**48 - 1, 2**48 - 1]
    assert arrays["delivery_count"].to_pylist() == [message.delivery_count for message in messages] == [1, 4096, 4096]
    assert arrays["enqueued_at"].to_pylist() == [message.enqueued_at for message in messages]


def test_only_what_is_asked_for_is_made(queue: RedisMessageQueue) -> None:
    queue.publish(b"a")

    arrays = message_arrays(queue.claim(10).messages, ("sequence", "id"))

    assert list(arrays) == ["sequence", "id"] == list(message_arrays([], ("sequence", "id")))


@pytest.mark.parametrize(
    "value",
    [
        b"",
        b"foreign",
        b"3%028xid\x1f\x1f\x1f" % 0,
        b"1%027xg" % 0 + b"id\x1f\x1f\x1f",
        b"1" + b"0" * 11 + b"zz" + b"0" * 15 + b"id\x1f\x1f\x1f",
        b"1" + b"0" * 10 + b"  " + b"0" * 16 + b"id\x1f\x1f\x1f",
        b"1%028xid\x1f\x1f" % 0,
        b"1%028x\xff\x1f\x1f\x1f" % 0,
    ],
)
def test_a_value_that_is_no_entry_is_refused_among_others(value: bytes) -> None:
    good = b"1%028xid\x1f\x1f\x1fx" % 1

    with pytest.raises(MalformedStoredMessageError, match="not a Sluicegate entry"):
        to_table([Message(good), Message(value), Message(good)])


def test_a_frame_keeps_whole_numbers_whole_beside_nulls() -> None:
    instant = datetime(2024, 1, 31, 12, tzinfo=UTC)
    table = pa.table(
        {
            "whole": pa.array([2**53 + 1, None], pa.int64()),
            "small": pa.array([1, None], pa.int8()),
            "flag": pa.array([True, None]),
            "text": pa.array(["x", None]),
            "raw": pa.array([b"\x00", None]),
            "at": pa.array([instant, None], pa.timestamp("us", "UTC")),
            "number": pa.array([1.5, None]),
        }
    )

    frame = to_pandas(table)

    assert [str(kind) for kind in frame.dtypes] == [
        "Int64", "Int8", "boolean", "object", "object", "datetime64[us, UTC]", "float64"
    ]  # fmt: skip
    assert frame["whole"][0] == 2**53 + 1
    assert frame.loc[0, ["text", "raw", "at"]].tolist() == ["x", b"\x00", pd.Timestamp(instant)]
    assert frame.loc[1].isna().all()


def test_blanks_among_the_digits_move_no_number_into_another_row() -> None:
    blank = Message(b"1" + b" " * 8 + b"%020xid\x1f\x1f\x1f" % 0)

    with pytest.raises(MalformedStoredMessageError):
        to_table([Message(b"1%028xid\x1f\x1f\x1f" % 1), blank, blank])
