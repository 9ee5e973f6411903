"""Rows of a table are published like the dicts that they are, by queues and streams of both flavours."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pandas as pd
import pyarrow as pa
import pytest
import redis

from sluicegate import RedisMessageQueue
from sluicegate.core.keys import StreamKeys
from sluicegate.errors import (
    BatchChangedError,
    ConfigurationError,
    OptionTypeError,
    QueueBackpressureError,
    QueueDrainedError,
)
from sluicegate.events import EventOperation, EventOutcome, QueueEvent
from tests.support.flavours import MakeStream

MakeQueue = Callable[..., RedisMessageQueue]


def orders(count: int, first: int = 0) -> pa.Table:
    numbers = range(first, first + count)
    return pa.table({"id": list(numbers), "name": [f'"{number}" é' for number in numbers], "price": [0.5] * count})


def payloads(queue: RedisMessageQueue, limit: int = 5000) -> list[Any]:
    with queue.claim(limit) as lease:
        return [message.json() for message in lease.messages]


def test_rows_are_the_messages_of_their_dicts(make_queue: MakeQueue) -> None:
    table = orders(2500)
    queue, other = make_queue(get_deduplication_key="id"), make_queue(name="other", get_deduplication_key="id")
    report = queue.publish_table(table, headers={"trace": "t"})
    alike = other.publish_many(table.to_pylist(), headers={"trace": "t"})
    assert (report.accepted, report.size_bytes) == (2500, alike.size_bytes)
    with queue.claim(5000) as lease, other.claim(5000) as its:
        parts = [[(m.payload, m.deduplication_key, m.headers, m.id) for m in each.messages] for each in (lease, its)]
    assert [part[:3] for part in parts[0]] == [part[:3] for part in parts[1]]
    assert [part[3] for part in parts[0]] == report.ids


@pytest.mark.parametrize("kind", ["table", "batch", "reader", "frame"])
def test_every_kind_of_table(queue: RedisMessageQueue, kind: str) -> None:
    table = orders(3)
    made = {
        "table": lambda: table,
        "batch": lambda: table.to_batches()[0],
        "reader": table.to_reader,
        "frame": table.to_pandas,
    }[kind]()
    assert queue.publish_table(made).accepted == 3
    assert payloads(queue) == table.to_pylist()


def test_a_key_of_the_call_replaces_the_queues(make_queue: MakeQueue) -> None:
    queue = make_queue(get_deduplication_key="id")
    table = pa.table({"id": [1, 2, 3], "a": ["x", "x", "y"], "b": [1, 1, 2]})
    assert queue.publish_table(table, key="a").duplicates == 1
    assert queue.publish_table(table, key=["a", "b"]).duplicates == 1
    assert queue.publish_table(table, key="{a}/{b}").duplicates == 1
    assert queue.publish_table(table).accepted == 3
    again = queue.publish_table(table)
    assert (again.accepted, again.duplicates) == (0, 3)
    with queue.claim(100) as lease:
        keys = [message.deduplication_key for message in lease.messages]
    assert keys == ["x", "y", "x:1", "y:2", "x/1", "y/2", "1", "2", "3"]
    with pytest.raises(ConfigurationError, match="is not a dotted path"):
        queue.publish_table(table, key="a b")


def test_a_key_of_the_call_is_enough(queue: RedisMessageQueue) -> None:
    assert queue.publish_table(orders(2), key="id").accepted == 2
    assert queue.publish_table(orders(3), key="id").duplicates == 2


def test_an_unfit_row_stops_its_call_and_leaves_those_before(make_queue: MakeQueue) -> None:
    queue = make_queue(get_deduplication_key="k")
    table = pa.table({"k": [*map(str, range(1500)), None, "z"]})
    with pytest.raises(ConfigurationError, match="deduplication field 'k' is null in the payload") as caught:
        queue.publish_table(table)
    assert caught.value.position == 1500
    assert "1000 messages before these were handled" in caught.value.__notes__[0]
    assert queue.depth().pending == 1000


def test_rows_may_be_delayed(queue: RedisMessageQueue) -> None:
    queue.publish_table(orders(2), delay_seconds=60)
    queue.publish_table(orders(1), due_at=datetime.now(UTC) + timedelta(hours=1))
    assert queue.depth().delayed == 3


def test_a_cap_may_be_met_in_part(make_queue: MakeQueue) -> None:
    queue = make_queue(max_pending_length=3)
    report = queue.publish_table(orders(5), partial=True)
    assert (report.accepted, report.refused_positions) == (3, [3, 4])
    with pytest.raises(QueueBackpressureError):
        queue.publish_table(orders(1))


def test_a_batch_of_rows_is_rejoined(queue: RedisMessageQueue) -> None:
    assert queue.publish_table(orders(250), batch_id="night", batch_size=100).accepted == 250
    assert queue.publish_table(orders(250), batch_id="night", batch_size=100).accepted == 250
    assert queue.depth().pending == 250
    with pytest.raises(BatchChangedError):
        queue.publish_table(orders(251), batch_id="night", batch_size=100)
    with pytest.raises(ConfigurationError, match="published whole"):
        queue.publish_table(orders(1), batch_id="other", partial=True)


def test_calls_have_the_asked_size(make_queue: MakeQueue, client: redis.Redis) -> None:
    queue = make_queue()
    queue.publish_table(orders(1))
    client.config_resetstat()
    queue.publish_table(orders(250), batch_size=100)
    assert client.info("commandstats")["cmdstat_evalsha"]["calls"] == 3
    with pytest.raises(ConfigurationError, match="batch_size"):
        queue.publish_table(orders(1), batch_size=1001)


def test_no_rows_are_no_messages(queue: RedisMessageQueue) -> None:
    for empty in (orders(0), orders(0).to_reader(), pd.DataFrame()):
        assert queue.publish_table(empty).accepted == 0
    assert queue.depth().ready == 0


def test_anything_else_is_refused(queue: RedisMessageQueue) -> None:
    wrong: Any = [{"a": 1}]
    with pytest.raises(OptionTypeError, match="publish_many takes an iterable of dicts"):
        queue.publish_table(wrong)


def test_events_are_those_of_publish_many(make_queue: MakeQueue) -> None:
    seen: list[QueueEvent] = []
    queue = make_queue(on_event=seen.append, get_deduplication_key="id")
    queue.publish_table(orders(1500))
    queue.publish_table(orders(1))
    with pytest.raises(ConfigurationError):
        queue.publish_table(pa.table({"id": [""]}))
    told = [(event.operation, event.outcome, event.count) for event in seen]
    assert told == [
        (EventOperation.PUBLISH, EventOutcome.SUCCESS, 1000),
        (EventOperation.PUBLISH, EventOutcome.SUCCESS, 500),
        (EventOperation.PUBLISH, EventOutcome.DUPLICATE, 1),
        (EventOperation.PUBLISH, EventOutcome.FAILURE, 1),
    ]
    assert (seen[3].error.position, seen[3].error.queue) == (0, queue.name)  # type: ignore[union-attr]


def test_a_closed_queue_publishes_no_table(queue: RedisMessageQueue) -> None:
    queue.shutdown()
    with pytest.raises(QueueDrainedError):
        queue.publish_table(orders(1))


def test_a_stream_takes_tables_too(make_stream: MakeStream, client: redis.Redis) -> None:
    stream = make_stream(get_deduplication_key="id")
    report = stream.publish_table(orders(1200), headers={"a": "b"})
    assert (report.accepted, len(set(report.ids))) == (1200, 1200)
    again = stream.publish_table(orders(2), key="{id}")
    assert again.duplicate_of == report.ids[:2]
    entries = client.xrange(StreamKeys("orders").stream)
    assert [json.loads(fields[b"data"]) for _, fields in entries] == orders(1200).to_pylist()
    assert entries[7][1] == {
        b"data": '{"id":7,"name":"\\"7\\" é","price":0.5}'.encode(),
        b"headers": b'{"a":"b"}',
        b"key": b"7",
    }
