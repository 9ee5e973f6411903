"""Browsing shows every state as a table, and no read changes it."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest
import redis
from pyspark.sql.types import StructType

from sluicegate import RedisMessageQueue
from sluicegate.spark._options import options
from sluicegate.spark.browsing import reader as _browse
from sluicegate.spark.datasource import SluicegateDataSource
from tests.draining.helpers import Numbers
from tests.spark.harness import Load
from tests.support.flavours import MakeQueue

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tests.support.servers import RedisServer

pytestmark = [pytest.mark.spark, pytest.mark.timeout(120)]
MESSAGE = ["id", "payload", "headers", "deduplication_key", "delivery_count", "sequence", "enqueued_at"]


@pytest.fixture
def queue(server: RedisServer, make_queue: MakeQueue) -> RedisMessageQueue:
    """Return a queue with a message or two in every state."""
    queue = make_queue(url=server.url, enable_completed_queue=True, enable_failed_queue=True)
    queue.publish_many([{"n": n} for n in range(8)], headers={"trace": "t"})
    lease = queue.claim(6)
    acked, again, late, buried, *released = lease.messages
    lease.ack(acked)
    lease.nack(again, error=ValueError("no"))
    lease.nack(late, delay_seconds=600)
    lease.bury(buried, error=KeyError("gone"), reason="hopeless")
    lease.release(released)
    return queue


def browse(queue: RedisMessageQueue, state: str, schema: StructType | None = None, **more: str) -> Load:
    return Load(SluicegateDataSource, {**options(queue), "state": state, **more}, schema)


def rows(load: Load) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = load.collect().to_pylist()
    return found


def payloads(load: Load) -> list[bytes]:
    return [row["payload"] for row in rows(load)]


def test_every_state_is_a_table_and_stays_as_it_is(queue: RedisMessageQueue) -> None:
    before = queue.depth(), queue.stats()

    assert payloads(browse(queue, "pending")) == [b'{"n":6}', b'{"n":7}']
    assert payloads(browse(queue, "returned")) == [b'{"n":1}', b'{"n":4}', b'{"n":5}']
    assert payloads(browse(queue, "delayed")) == [b'{"n":2}']
    assert payloads(browse(queue, "dead")) == [b'{"n":3}']
    assert payloads(browse(queue, "completed")) == [b'{"n":0}']
    assert sorted(payloads(browse(queue, "failed"))) == [b'{"n":1}', b'{"n":2}', b'{"n":3}']

    after = queue.depth(), queue.stats()
    moving = {name: getattr(after[0], name) for name in ("oldest_ready_age_seconds", "next_due_seconds")}
    assert after == (replace(before[0], **moving), before[1])


def test_the_columns_of_a_message_and_what_its_state_adds(queue: RedisMessageQueue) -> None:
    (dead,) = rows(browse(queue, "dead"))
    (letter,) = queue.peek(state="dead")
    assert list(dead) == [*MESSAGE, "reason", "error_type", "error", "buried_at"]
    assert letter.message is not None
    assert (dead["id"], dead["headers"], dead["deduplication_key"]) == (letter.id, [("trace", "t")], None)
    assert (dead["delivery_count"], dead["sequence"]) == (1, 4)
    assert dead["enqueued_at"] == letter.message.enqueued_at
    assert (dead["reason"], dead["error_type"], dead["buried_at"]) == ("hopeless", "KeyError", letter.buried_at)

    (done,) = rows(browse(queue, "completed"))
    assert list(done) == [*MESSAGE, "completed_at"]
    assert done["completed_at"] == queue.peek(state="completed")[0].completed_at

    failed = rows(browse(queue, "failed"))
    assert list(failed[0]) == [*MESSAGE, "error_type", "error", "verb", "failed_at"]
    assert sorted((row["error_type"], row["verb"]) for row in failed) == [
        ("", "nack"),
        ("KeyError", "bury"),
        ("ValueError", "nack"),
    ]
    assert list(rows(browse(queue, "pending"))[0]) == MESSAGE


def test_a_declared_schema_gives_the_fields_of_the_payload(queue: RedisMessageQueue) -> None:
    declared = StructType().add("n", "long").add("message_reason", "string").add("message_id", "string", False)
    assert rows(browse(queue, "dead", declared)) == [
        {"n": 3, "message_reason": "hopeless", "message_id": queue.peek(state="dead")[0].id}
    ]


def test_an_empty_state_is_one_empty_partition(make_queue: MakeQueue, server: RedisServer) -> None:
    empty = make_queue("empty", url=server.url)
    for state in ("pending", "dead", "completed"):
        load = browse(empty, state)
        assert len(load.plan()) == 1
        assert rows(load) == []


def test_windows_cut_what_is_there_and_the_last_sees_what_arrives(queue: RedisMessageQueue, numbers: Numbers) -> None:
    numbers(23)  # and two that wait
    load = browse(queue, "pending", numPartitions="4", limit="30")
    assert load.plan() == [_browse.Window(0, 7), _browse.Window(7, 7), _browse.Window(14, 7), _browse.Window(21, 9)]
    assert [row["sequence"] for row in rows(load)] == list(range(7, 32))

    queue.publish_many({"n": n} for n in range(20))

    assert [row["sequence"] for row in rows(load)] == list(range(7, 37)), "up to the limit"
    assert len(browse(queue, "pending", limit="3").collect()) == 3


def test_pages_follow_the_size_of_the_messages(queue: RedisMessageQueue, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_browse, "_PAGE_BYTES", 10_000)
    queue.publish_many({"n": n, "ballast": "x" * 950} for n in range(200))
    asked: list[int] = []
    peek = _browse._peek

    def counting(queue: Any, state: str, count: int, *where: Any) -> Any:
        asked.append(count)
        return peek(queue, state, count, *where)

    monkeypatch.setattr(_browse, "_peek", counting)
    assert len(rows(browse(queue, "pending", numPartitions="1", limit="202"))) == 202
    assert asked[0] == 50
    assert set(asked[2:-1]) == {9}, "of about a thousand bytes each"


@pytest.mark.parametrize("count", [1, 2, 3, 7, 8, 9])
def test_the_length_of_a_history_is_found(queue: RedisMessageQueue, client: redis.Redis, count: int) -> None:
    record = client.lindex(queue.key.completed, 0)
    assert record is not None
    client.delete(queue.key.completed)
    client.rpush(queue.key.completed, *[record] * count)

    assert _browse._size(queue, "completed") == count
    assert len(rows(browse(queue, "completed", numPartitions="3"))) == count


def test_what_is_no_message_is_a_row_without_an_id(queue: RedisMessageQueue, client: redis.Redis) -> None:
    client.rpush(queue.key.pending, b"stray")
    (stray, *_) = rows(browse(queue, "pending"))
    assert (stray["id"], stray["payload"], stray["sequence"]) == ("", b"stray", 0)

    while queue.claim(10):  # one of these claims finds and buries it
        pass
    stray = rows(browse(queue, "dead"))[-1]
    assert (stray["id"], stray["payload"], stray["reason"]) == ("", b"stray", "foreign")
    assert stray["enqueued_at"] == stray["buried_at"] > datetime(2020, 1, 1, tzinfo=UTC)


def test_in_spark_and_in_sql(spark: SparkSession, queue: RedisMessageQueue, server: RedisServer) -> None:
    dead = spark.read.format("sluicegate").options(**options(queue), state="dead").load()
    assert [(row.reason, bytes(row.payload)) for row in dead.collect()] == [("hopeless", b'{"n":3}')]
    assert dead.filter("reason = 'other'").count() == 0
    assert dead.join(dead, "id").count() == 1

    declared = spark.read.format("sluicegate").schema("n bigint").options(**options(queue), state="returned").load()
    assert sorted(row.n for row in declared.collect()) == [1, 4, 5]

    spark.sql(
        f"CREATE OR REPLACE TEMPORARY VIEW browsed USING sluicegate OPTIONS (url '{server.url}', "
        f"queue '{queue.name}', state 'pending')"
    )
    assert spark.sql("SELECT count(*) FROM browsed").collect()[0][0] == 2
    assert (queue.depth().pending, queue.depth().in_flight) == (2, 0)
