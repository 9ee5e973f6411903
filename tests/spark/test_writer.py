"""Writes without a JVM publish each row once, for every retry, speculative attempt and replay in Spark's order."""

from __future__ import annotations

import json
import logging
import time
from collections import Counter
from typing import Any

import pyarrow as pa
import pytest
import redis
from pyspark.sql.conversion import ArrowTableToRowsConversion
from pyspark.sql.datasource import DataSourceStreamWriter

from sluicegate import (
    ConfigurationError,
    PayloadTooDeepError,
    PayloadTooLargeError,
    QueueBackpressureError,
    RedisMessageQueue,
)
from sluicegate.core import publishing
from sluicegate.spark._options import WriteOptions
from sluicegate.spark.datasource import SluicegateDataSource
from sluicegate.spark.writing import writer as _writer
from sluicegate.spark.writing.plan import plan_write
from tests.spark.harness import Attempt, Killed, Save, StreamSave, TaskFailed
from tests.support import markers
from tests.support.flavours import MakeQueue
from tests.support.servers import RedisServer

ATTEMPTS = {
    "all went well": {},
    "the first attempt failed in the middle": {0: [Attempt(3)]},
    "two attempts failed, one at once": {1: [Attempt(0), Attempt(4)]},
    "a speculative attempt ran to its end, too": {0: [Attempt(lost=True)], 1: [Attempt(lost=True), Attempt(2)]},
}
KEYS = {"automatic": {}, "column": {"deduplicationKeyColumn": "n"}, "template": {"deduplicationKey": "k-{n}"}}
MODES = ["direct", "staged"]


def table(first: int, last: int, batch: int = 10) -> pa.Table:
    """Return the numbers from `first` to `last` - 1, in small batches."""
    numbers = [pa.table({"n": list(range(at, min(at + batch, last)))}) for at in range(first, last, batch)]
    return pa.concat_tables(numbers)


def options_of(queue: RedisMessageQueue, **options: str) -> dict[str, str]:
    return {"spec": queue.spec().to_json(), **options}


def save(queue: RedisMessageQueue, *tables: pa.Table, attempts: Any = None, **options: str) -> list[Any]:
    messages = Save(SluicegateDataSource, options_of(queue, **options), tables, attempts or {}).run()
    return [message.written for message in messages if isinstance(message, _writer.Report)]


def numbers(queue: RedisMessageQueue) -> list[int]:
    return sorted(message.json()["n"] for message in queue.peek(100_000))


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("keys", KEYS.values(), ids=KEYS)
@pytest.mark.parametrize("attempts", ATTEMPTS.values(), ids=ATTEMPTS)
def test_each_row_once_whatever_became_of_attempts(
    queue: RedisMessageQueue, attempts: Any, keys: dict[str, str], mode: str
) -> None:
    save(queue, table(0, 55), table(55, 120), attempts=attempts, writeMode=mode, **keys)
    assert numbers(queue) == list(range(120))


@pytest.mark.parametrize("mode", MODES)
def test_rows_that_are_alike_stay_several(queue: RedisMessageQueue, mode: str) -> None:
    alike = pa.concat_tables([pa.table({"n": [7, 7, 8]}), pa.table({"n": [7, 8]})])
    save(queue, alike, alike, attempts={0: [Attempt(1)], 1: [Attempt(lost=True)]}, writeMode=mode)
    assert Counter(numbers(queue)) == {7: 6, 8: 4}


def test_a_retry_finds_its_rows_in_another_order(queue: RedisMessageQueue) -> None:
    plan = plan_write(WriteOptions.parse(options_of(queue)), _schema(table(0, 1)), overwrite=False)
    rows = [0, 1, 2, 1, 3, 1]
    plan.write(pa.table({"n": rows[:4]}).to_batches(), 0, "w")
    done = plan.write(pa.table({"n": rows[::-1]}).to_batches(), 0, "w")
    assert (done.rows, done.published, done.duplicates) == (6, 2, 4)
    assert numbers(queue) == sorted(rows)


def test_automatic_names_stay_out_of_the_messages(queue: RedisMessageQueue, client: redis.Redis) -> None:
    save(queue, table(0, 3))
    assert [message.deduplication_key for message in queue.peek(10)] == [None] * 3
    held = markers.held(client, queue.session.keys)
    lives = [markers.left_ms(client, queue.session.keys, key) for key in held]
    assert len(lives) == 3
    assert all(3_500_000 < life <= 3_600_000 for life in lives)


def test_keys_headers_and_window_are_as_asked(queue: RedisMessageQueue, client: redis.Redis) -> None:
    kind = pa.map_(pa.string(), pa.string())
    row = pa.table({"n": [1], "h": pa.array([[("trace", "t1")]], kind)})
    save(queue, row, headersColumn="h", deduplicationKey="{n}", deduplicationWindowSeconds="60")
    (message,) = queue.peek()
    assert (message.deduplication_key, message.headers, message.json()) == ("1", {"trace": "t1"}, {"n": 1})
    assert 50_000 < markers.left_ms(client, queue.session.keys, b"1") <= 60_000


@pytest.mark.parametrize("mode", MODES)
def test_keys_of_the_queue_are_used_and_held_against_other_publishers(
    server: RedisServer, make_queue: MakeQueue, mode: str
) -> None:
    queue = make_queue(url=server.url, get_deduplication_key="{n}")
    queue.publish({"n": 3})
    (done,) = save(queue, table(0, 5), writeMode=mode)
    assert numbers(queue) == [0, 1, 2, 3, 4]
    assert queue.publish({"n": 4}) is False
    assert (done.rows, done.published, done.duplicates) == ((5, 4, 1) if mode == "direct" else (5, 0, 0))


def test_the_same_write_id_publishes_nothing_twice(queue: RedisMessageQueue) -> None:
    for mode in MODES:
        for _ in range(2):
            save(queue, table(0, 20), table(20, 30), writeMode=mode, writeId=f"night {mode}")
    assert Counter(numbers(queue)) == dict.fromkeys(range(30), 2), "once per mode"


def test_writes_without_an_id_are_different_writes(queue: RedisMessageQueue) -> None:
    for _ in range(2):
        save(queue, table(0, 3))
    assert numbers(queue) == [0, 0, 1, 1, 2, 2]


@pytest.mark.parametrize("mode", MODES)
def test_an_empty_frame(queue: RedisMessageQueue, mode: str) -> None:
    save(queue, table(0, 1).slice(1), writeMode=mode)
    assert queue.depth().ready == 0


# ---------------------------------------------------------------------- failed jobs


def test_a_failed_direct_write_says_what_stays_and_is_completed_by_its_id(
    queue: RedisMessageQueue, caplog: pytest.LogCaptureFixture
) -> None:
    failing = {1: [Attempt(2)] * 3}
    with pytest.raises(TaskFailed):
        save(queue, table(0, 30), table(30, 80), attempts=failing, writeId="w")
    assert numbers(queue) == list(range(50))
    assert "write 'w' to queue 'orders' failed: 30 messages of 1 finished tasks stay published" in caplog.text
    save(queue, table(0, 30), table(30, 80), writeId="w")
    assert numbers(queue) == list(range(80))


def test_the_error_of_a_task_says_what_it_has_published(queue: RedisMessageQueue) -> None:
    rows = pa.concat_tables([table(0, 10), pa.table({"n": pa.array([None], pa.int64())})])
    plan = plan_write(WriteOptions.parse(options_of(queue, deduplicationKeyColumn="n")), _schema(rows), overwrite=False)
    with pytest.raises(ConfigurationError, match="column 'n' is null") as caught:
        plan.write(rows.to_batches(), 2, "w")
    note, _ = caught.value.__notes__
    assert note == (
        "write 'w', partition 2: 10 messages published, 0 duplicates before this error; they stay published, and a "
        "retry repeats none of them"
    )


def test_a_failed_staged_write_publishes_nothing(queue: RedisMessageQueue, client: redis.Redis) -> None:
    with pytest.raises(TaskFailed):
        save(queue, table(0, 30), table(30, 80), attempts={1: [Attempt(2)] * 3}, writeMode="staged")
    assert queue.depth().ready == 0
    left = list(client.scan_iter("*:stage:*"))
    assert len(left) == 3, "the attempts that failed leave what runs out; the task that ended, nothing"
    assert all(0 < client.pttl(key) <= 86_400_000 for key in left)


@pytest.mark.parametrize("mode", MODES)
def test_a_full_queue_refuses_and_goes_on_once_there_is_room(queue: RedisMessageQueue, mode: str) -> None:
    wanted = {"writeMode": mode, "writeId": "w", "maxPendingLength": "25", "batchSize": "10"}
    with pytest.raises((QueueBackpressureError, TaskFailed)) as caught:
        save(queue, table(0, 40), **wanted)
    assert numbers(queue) == list(range(20))
    assert any("20" in note for note in caught.value.__notes__)
    assert queue.claim(20).ack() is None
    save(queue, table(0, 40), **wanted)
    assert numbers(queue) == list(range(20, 40))


@pytest.mark.parametrize("mode", MODES)
def test_a_write_waits_for_room(queue: RedisMessageQueue, mode: str) -> None:
    """Each refusal makes room: the write is through once it has asked again often enough."""
    options = options_of(queue, writeMode=mode, maxPendingLength="10", batchSize="10", overload="block")
    taken: list[int] = []

    def make_room(call: Any) -> None:
        if call.script.name == "publish":
            with RedisMessageQueue.from_spec(queue.spec()).claim(10) as lease:
                taken.extend(message.json()["n"] for message in lease)

    with _watching(make_room):
        Save(SluicegateDataSource, options, [table(0, 40)]).run()
    assert sorted(taken + numbers(queue)) == list(range(40))


@pytest.mark.parametrize("of_queue", [{}, {"pending_overload_policy": "block", "max_pending_length": 10}])
def test_a_write_waits_for_room_as_long_as_it_is_told(
    server: RedisServer, make_queue: MakeQueue, of_queue: dict[str, Any]
) -> None:
    queue = make_queue(url=server.url, **of_queue)
    beside = {} if of_queue else {"maxPendingLength": "10", "overload": "block"}
    begun = time.monotonic()

    with pytest.raises((QueueBackpressureError, TaskFailed)):
        save(queue, table(0, 20), batchSize="10", blockTimeoutSeconds="0.3", **beside)

    assert 0.3 <= time.monotonic() - begun < 30
    assert numbers(queue) == list(range(10))


# ---------------------------------------------------------------------- streams


@pytest.mark.parametrize("mode", MODES)
def test_a_micro_batch_that_is_replayed_adds_nothing(queue: RedisMessageQueue, mode: str) -> None:
    stream = StreamSave(SluicegateDataSource, options_of(queue, writeMode=mode), attempts={0: [Attempt(2)]})
    with pytest.raises(Killed):
        stream.run(0, [table(0, 40), table(40, 50)], kill=True)
    stream.run(0, [table(0, 40), table(40, 50)])
    stream.run(0, [table(0, 40), table(40, 50)])
    stream.run(1, [table(0, 40), table(40, 50)])
    assert Counter(numbers(queue)) == dict.fromkeys(range(50), 2), "once per micro-batch"


def test_two_queries_write_apart(queue: RedisMessageQueue) -> None:
    for query in "ab":
        StreamSave(SluicegateDataSource, options_of(queue), query_id=query).run(0, [table(0, 3)])
    assert numbers(queue) == [0, 0, 1, 1, 2, 2]


def test_a_query_that_nobody_names_is_refused(queue: RedisMessageQueue) -> None:
    named = {"writeId": "w", "checkpointLocation": "/where/another/query/may/have/been"}
    with pytest.raises(ConfigurationError, match=r"which micro-batch this is.*foreachBatch"):
        StreamSave(SluicegateDataSource, options_of(queue, **named), query_id="").run(0, [table(0, 3)])


@pytest.mark.parametrize("mode", MODES)
def test_a_new_checkpoint_begins_a_new_write_under_the_same_write_id(queue: RedisMessageQueue, mode: str) -> None:
    """Its batches are counted from 0 again, and their rows are others."""
    options = options_of(queue, writeMode=mode, writeId="w", checkpointLocation="/somewhere")
    for query, first in (("one", 0), ("two", 3)):
        for _ in range(2):
            StreamSave(SluicegateDataSource, options, query_id=query).run(0, [table(first, first + 3)])
    assert numbers(queue) == [0, 1, 2, 3, 4, 5]


@pytest.mark.parametrize("mode", MODES)
def test_a_spark_without_arrow_for_streams_gives_rows(
    queue: RedisMessageQueue, mode: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """PySpark 4.0: the same messages as from Arrow, nested values and times included."""
    from datetime import UTC, datetime

    kind = pa.map_(pa.string(), pa.struct({"x": pa.int32()}))
    rows = pa.table(
        {
            "n": pa.array([1, 2], pa.int32()),
            "at": pa.array([datetime(2026, 1, 2, tzinfo=UTC), None], pa.timestamp("us", "UTC")),
            "m": pa.array([[("k", {"x": 1})], None], kind),
        }
    )
    stream = StreamSave(SluicegateDataSource, options_of(queue, writeMode=mode))
    stream.run(0, [rows])
    monkeypatch.setattr(_writer, "_to_arrow", _converted_with(rows))
    monkeypatch.setattr(_writer, "StreamWriter", _RowStreamWriter)
    stream.run(1, [rows])
    first, second = queue.peek(4)[:2], queue.peek(4)[2:]
    assert [message.payload for message in second] == [message.payload for message in first]
    assert json.loads(first[0].payload) == {"n": 1, "at": "2026-01-02T00:00:00.000000Z", "m": {"k": {"x": 1}}}


# ---------------------------------------------------------------------- refused before any row is read


@pytest.mark.parametrize(
    ("queue_options", "options", "reported"),
    [
        ({"get_deduplication_key": lambda row: "k"}, {}, "is a function, which cannot be serialized"),
        ({"get_deduplication_key": "nope"}, {}, "field 'nope' names the column 'nope'; there are n"),
        (
            {"get_deduplication_key": "n", "deduplication_policy": "until_acked"},
            {},
            "frees deduplication keys on ack.*writeMode=staged",
        ),
        (
            {"max_pending_length": 5, "pending_overload_policy": "drop_oldest", "max_delivery_count": None},
            {"deduplicationKeyColumn": "n"},
            "drops its oldest messages.*overload=raise",
        ),
        ({}, {"overload": "block"}, "needs max_pending_length, by the queue or as the option maxPendingLength"),
        ({}, {"blockTimeoutSeconds": "5"}, "blockTimeoutSeconds is how long .*give overload=block"),
        ({}, {"blockTimeoutSeconds": "5", "maxPendingLength": "9", "overload": "raise"}, "this write does not wait"),
    ],
)
def test_queues_and_options_that_cannot_work_together(
    server: RedisServer, make_queue: MakeQueue, queue_options: Any, options: Any, reported: str
) -> None:
    queue = make_queue(url=server.url, **queue_options)
    with pytest.raises(ConfigurationError, match=reported):
        save(queue, table(0, 1), **options)


@pytest.mark.parametrize("method", ["writer", "streamWriter"])
def test_a_queue_is_never_overwritten(queue: RedisMessageQueue, method: str) -> None:
    source = SluicegateDataSource(options_of(queue))
    with pytest.raises(ConfigurationError, match=r"cannot be overwritten; write with mode\('append'\)"):
        getattr(source, method)(_schema(table(0, 1)), True)


def test_a_key_function_that_cannot_travel_is_replaced_by_an_option(server: RedisServer, make_queue: MakeQueue) -> None:
    queue = make_queue(url=server.url, get_deduplication_key=lambda row: "k")
    save(queue, table(0, 3), deduplicationKeyColumn="n")
    assert numbers(queue) == [0, 1, 2]


@pytest.mark.parametrize("mode", MODES)
def test_limits_of_the_queue_hold_for_rows(server: RedisServer, make_queue: MakeQueue, mode: str) -> None:
    queue = make_queue(url=server.url, max_payload_bytes=8)
    with pytest.raises(Exception, match="max_payload_bytes is 8"):
        save(queue, pa.table({"n": [10**9]}), writeMode=mode)
    save(queue, pa.table({"n": [7]}), writeMode=mode)
    assert numbers(queue) == [7]


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("limit", ["the queue's", "the server's"])
def test_a_row_that_is_too_large_is_named_by_its_position_and_sent_once(
    server: RedisServer, make_queue: MakeQueue, client: redis.Redis, mode: str, limit: str
) -> None:
    queue = make_queue(url=server.url, max_payload_bytes=1_000_000 if limit == "the queue's" else None)
    rows = pa.table({"payload": ["x" * 1_200_000 if n == 1700 else f"{n}" for n in range(2500)]})
    plan = plan_write(WriteOptions.parse(options_of(queue, writeMode=mode)), _schema(rows), False)
    before = client.config_get("proto-max-bulk-len")["proto-max-bulk-len"]
    client.config_set("proto-max-bulk-len", 1024 * 1024)
    try:
        with pytest.raises(PayloadTooLargeError) as caught:
            plan.write(rows.to_batches(max_chunksize=900), 3, "w")
    finally:
        client.config_set("proto-max-bulk-len", before)

    assert caught.value.position == 1700
    assert "partition 3" in caught.value.__notes__[0]
    assert "xxx" not in str(caught.value)


@pytest.mark.parametrize("mode", MODES)
def test_a_row_that_is_nested_too_deeply_is_named_by_its_position(
    server: RedisServer, make_queue: MakeQueue, mode: str
) -> None:
    queue = make_queue(url=server.url, max_payload_depth=1)
    rows = pa.table({"payload": ['{"a": {}}' if n == 1700 else f"{n}" for n in range(2500)]})
    plan = plan_write(WriteOptions.parse(options_of(queue, writeMode=mode)), _schema(rows), False)
    with pytest.raises(PayloadTooDeepError) as caught:
        plan.write(rows.to_batches(max_chunksize=900), 3, "w")
    assert caught.value.position == 1700


def test_a_large_slice_goes_in_several_calls(queue: RedisMessageQueue, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(publishing, "MAX_BYTES_PER_CALL", 100)
    calls: dict[bytes, int] = {}  # by batch: a call may be sent and then executed

    def count(call: Any) -> None:
        if call.script.name == "publish":
            calls[call.args[0]] = len(call.args) - len(call.script.header.args) + 1

    with _watching(count):
        save(queue, pa.table({"payload": ["x" * 40, "y" * 40, "z" * 300, "w"]}))
    assert list(calls.values()) == [2, 1, 1]
    assert queue.depth().ready == 4


def test_one_line_says_what_was_done(queue: RedisMessageQueue, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "sluicegate"):
        save(queue, table(0, 5), table(5, 9), writeId="w", deduplicationKeyColumn="n")
        save(queue, table(4, 10), writeId="v", deduplicationKeyColumn="n", writeMode="staged")
    assert caplog.messages == [
        "write 'w' to queue 'orders': 9 rows of 2 tasks, 9 published, 0 duplicates",
        "write 'v' to queue 'orders': 6 rows of 1 tasks, 1 published, 5 duplicates",
    ]


def test_no_secret_is_in_what_travels(
    server: RedisServer, monkeypatch: pytest.MonkeyPatch, client: redis.Redis
) -> None:
    import pickle

    monkeypatch.setenv("QUEUE_PASSWORD", "hunter2")
    url = server.url + ("&" if "?" in server.url else "?") + "password_env=QUEUE_PASSWORD"
    writer = SluicegateDataSource({"url": url, "queue": "orders"}).writer(_schema(table(0, 1)), False)
    travelling = pickle.dumps(writer)
    assert b"hunter2" not in travelling
    assert b"QUEUE_PASSWORD" in travelling
    with pytest.raises(ConfigurationError):
        SluicegateDataSource({"url": "redis://:hunter2@host:6379", "queue": "q"}).writer(_schema(table(0, 1)), False)


# ---------------------------------------------------------------------- helpers


def _schema(rows: pa.Table) -> Any:
    from pyspark.sql.pandas.types import from_arrow_schema

    return from_arrow_schema(rows.schema)


class _RowStreamWriter(DataSourceStreamWriter):
    """The stream writer as it is where Spark gives rows."""

    __init__ = _writer.StreamWriter.__init__
    write = _writer.StreamWriter.write
    commit = _writer.StreamWriter.commit
    abort = _writer.StreamWriter.abort
    _name_batch = _writer.StreamWriter._name_batch


def _converted_with(rows: pa.Table) -> Any:
    plain = _writer._to_arrow

    def convert(given: Any, schema: Any) -> Any:
        given = list(given)
        assert [type(row).__name__ for row in given] == ["Row"] * rows.num_rows, "rows, not Arrow"
        return plain(iter(ArrowTableToRowsConversion.convert(rows, schema)), schema)  # as Spark makes them

    return convert


class _watching:
    """Passes each call to a function before it is sent."""

    def __init__(self, emits_events: Any) -> None:
        self._tell, self._patch = emits_events, pytest.MonkeyPatch()

    def __enter__(self) -> None:
        from sluicegate.gateway import RedisGateway

        reported, busy = self._tell, []
        for name in ("execute", "send"):
            plain = getattr(RedisGateway, name)

            def watched(gateway: Any, call: Any, *args: Any, plain: Any = plain, **options: Any) -> Any:
                if not busy:
                    busy.append(True)
                    reported(call)
                    busy.clear()
                return plain(gateway, call, *args, **options)

            self._patch.setattr(RedisGateway, name, watched)

    def __exit__(self, *_: object) -> None:
        self._patch.undo()
