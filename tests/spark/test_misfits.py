"""Payloads that do not fit their schema: they fail, become nulls, or are buried once, by the driver and by no read."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, cast

import pyarrow as pa
import pytest
import redis
from pyspark.sql.types import LongType, StringType, StructField, StructType

from sluicegate import RedisMessageQueue
from sluicegate._lease_base import LeaseState
from sluicegate.core.ledger import LeaseCounts
from sluicegate.errors import ConfigurationError, LeaseLostError, RedisUnavailableError
from sluicegate.lease import Lease
from sluicegate.spark import PayloadError, SluicegateDataSource, drain, lease_batch, options
from sluicegate.spark._options import BrowseOptions, StreamOptions
from sluicegate.spark.leasing import burying
from sluicegate.spark.leasing import run_leases as _run_leases
from sluicegate.spark.leasing.run_leases import RunLeases, claim_run
from sluicegate.tables.columns import Columns
from tests.spark.harness import ZERO_ARGUMENTS, Checkpoint, Killed, Load, Query
from tests.spark.test_columns import messages
from tests.spark.test_stream import OldDataSource, die
from tests.support import state

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession

N = pa.schema([("n", pa.int64())])
STRUCT = StructType([StructField("n", LongType())])
CORRUPT = StructType([*STRUCT.fields, StructField("_corrupt_record", StringType())])
WIDE = pa.schema(
    [
        ("a", pa.int64()),
        ("items", pa.list_(pa.struct([("price", pa.float64())]))),
        ("m", pa.map_(pa.string(), pa.int64())),
        ("_corrupt_record", pa.string()),
    ]
)


def publish(queue: RedisMessageQueue, *values: object) -> None:
    """Publish one message per value of `n`."""
    queue.publish_many([{"n": value} for value in values])


def letters(queue: RedisMessageQueue) -> list[tuple[str, str, Any]]:
    """Return reason, error type and payload of each dead letter, the oldest first."""
    found = queue.peek(100, state="dead")
    return [
        (letter.reason, letter.error_type, letter.message.json() if letter.message else None)
        for letter in sorted(found, key=lambda letter: letter.message.sequence if letter.message else 0)
    ]


# ---------------------------------------------------------------------- columns


def test_permissive_reads_what_fits_and_keeps_the_payload_of_what_does_not() -> None:
    table = Columns.of(WIDE, message_columns=False, mode="permissive").table(
        messages(
            b'{"a":1,"items":[{"price":1.5}]}',
            b'{"a":"x","items":[{"price":2}],"m":{"k":3}}',
            b"no JSON\xff",
            b'{"a":2,"m":{"k":"v"}}',
            b'{"a":3}',
        )
    )

    assert table.to_pylist() == [
        {"a": 1, "items": [{"price": 1.5}], "m": None, "_corrupt_record": None},
        {
            "a": None,
            "items": [{"price": 2.0}],
            "m": [("k", 3)],
            "_corrupt_record": '{"a":"x","items":[{"price":2}],"m":{"k":3}}',
        },
        {"a": None, "items": None, "m": None, "_corrupt_record": "no JSON\ufffd"},
        {"a": 2, "items": None, "m": None, "_corrupt_record": '{"a":2,"m":{"k":"v"}}'},
        {"a": 3, "items": None, "m": None, "_corrupt_record": None},
    ]
    assert table.schema.equals(Columns.of(WIDE, message_columns=False, mode="PERMISSIVE").arrow_schema())


def test_permissive_without_such_a_column_gives_nulls_alone() -> None:
    columns = Columns.of(N, message_columns=False, mode="PERMISSIVE")

    assert columns.table(messages(b"1", b'{"n":2}')).to_pylist() == [{"n": None}, {"n": 2}]
    assert columns.corrupt_column is None


def test_the_column_has_the_name_that_is_given_and_is_null_where_all_fits() -> None:
    schema = pa.schema([("bad", pa.string()), ("n", pa.int64())])
    columns = Columns.of(schema, message_columns=False, mode="PERMISSIVE", column_name_of_corrupt_record="bad")

    assert columns.table(messages(b'{"n":1,"bad":"x"}')).to_pylist() == [{"bad": None, "n": 1}]
    assert columns.table(messages(b"[]")).to_pylist() == [{"bad": "[]", "n": None}]
    assert columns.corrupt_column == "bad"


@pytest.mark.parametrize(
    ("payload", "reason"),
    [
        (b'{"items":[{"price":1},{"price":"secret"}]}', "field 'items' at $.items[1].price is a string that does not"),
        (b'{"m":{"secret":"x"}}', "field 'm' at $.m.* is a string that does not fit int64"),
        (b'{"items":[7]}', "field 'items' at $.items[0] is a number that does not fit struct<price: double>"),
        (b'{"a":"secret"}', "field 'a' is a string that does not fit int64"),
        (b"secret", "it is not JSON"),
    ],
)
def test_the_reason_names_the_path_and_no_value(payload: bytes, reason: str) -> None:
    unfit = Columns.of(WIDE, mode="BURY").misfits(messages(b"{}", payload))

    assert unfit is not None
    assert (unfit.positions, unfit.message_ids) == ((1,), ("id1",))
    assert str(unfit.errors[0]).startswith(f"the payload does not fit the declared schema: {reason}")
    assert "secret" not in str(unfit) + str(unfit.errors[0])


@pytest.mark.parametrize(
    ("schema", "given", "error"),
    [
        (N, {"mode": "DROPMALFORMED"}, "mode must be one of FAILFAST, PERMISSIVE, BURY"),
        (None, {"mode": "BURY"}, "none is declared"),
        (N, {"mode": "PERMISSIVE", "column_name_of_corrupt_record": "bad"}, "declare that column as string"),
        (N, {"mode": "BURY", "column_name_of_corrupt_record": "n"}, "the mode is BURY"),
        (N, {"mode": "PERMISSIVE", "column_name_of_corrupt_record": "n"}, "must be declared as a nullable string"),
        (pa.schema([pa.field("n", pa.int64(), nullable=False)]), {"mode": "PERMISSIVE"}, "drop the NOT NULL"),
    ],
)
def test_modes_that_cannot_work_are_refused(schema: Any, given: dict[str, str], error: str) -> None:
    with pytest.raises(ConfigurationError, match=error):
        Columns.of(schema, **given)  # type: ignore[arg-type]


# ---------------------------------------------------------------------- reads


def test_options_take_the_modes_in_any_case_and_a_read_refuses_to_bury(queue: RedisMessageQueue) -> None:
    given = {**options(queue), "MODE": "bury", "consumer": "etl"}

    assert StreamOptions.parse(given).mode == "BURY"
    with pytest.raises(ConfigurationError, match="a read changes nothing, so it cannot bury"):
        BrowseOptions.parse({**options(queue), "mode": "Bury"})
    with pytest.raises(ConfigurationError, match="mode must be one of"):
        BrowseOptions.parse({**options(queue), "mode": "drop"})


def test_a_read_shows_misfits_and_leaves_them(queue: RedisMessageQueue) -> None:
    publish(queue, 1, "two", 3)

    def rows(schema: StructType, **more: str) -> list[dict[str, Any]]:
        return list(Load(SluicegateDataSource, {**options(queue), **more}, schema).collect().to_pylist())

    assert rows(CORRUPT, mode="Permissive") == [
        {"n": 1, "_corrupt_record": None},
        {"n": None, "_corrupt_record": '{"n":"two"}'},
        {"n": 3, "_corrupt_record": None},
    ]
    with pytest.raises(PayloadError, match="field 'n' is a string"):
        rows(STRUCT)
    assert (queue.depth().ready, queue.depth().dead) == (3, 0)


# ---------------------------------------------------------------------- streams


class Stream:
    """Queries of one consumer with a declared schema; `numbers` has what they wrote, batch by batch."""

    def __init__(self, queue: RedisMessageQueue) -> None:
        self.given = {**options(queue), "consumer": "etl", "pollWaitSeconds": "0", "maxMessagesPerTrigger": "4"}
        self.checkpoint = Checkpoint()
        self.written: dict[int, list[int]] = {}

    def query(self, mode: str, **more: Any) -> Query:
        given = {**self.given, "mode": mode}
        source = OldDataSource if more.get("dialect") == ZERO_ARGUMENTS else SluicegateDataSource
        schema = more.pop("schema", STRUCT)
        return Query(source, given, self.checkpoint, self.sink, schema=schema, on_death=die, **more)

    def run(self, mode: str = "BURY", **more: Any) -> list[int]:
        query = self.query(mode, trigger="available now", **more)
        try:
            return query.run()
        finally:
            die(query.reader)

    def sink(self, batch: int, tables: list[pa.Table]) -> None:
        self.written[batch] = [n for table in tables for n in table["n"].to_pylist()]

    @property
    def numbers(self) -> list[int]:
        return [n for batch in self.written.values() for n in batch]


@pytest.fixture
def stream(queue: RedisMessageQueue) -> Stream:
    return Stream(queue)


def test_a_stream_buries_misfits_once_and_continues(
    stream: Stream, queue: RedisMessageQueue, client: redis.Redis
) -> None:
    publish(queue, 0, "one", 2, 3, 4, 5, None, "seven", 8)

    assert stream.run() == [0, 1, 2]

    assert stream.written == {0: [0, 2, 3], 1: [4, 5, None], 2: [8]}
    assert letters(queue) == [
        ("invalid_payload", "PayloadError", {"n": "one"}),
        ("invalid_payload", "PayloadError", {"n": "seven"}),
    ]
    (first, *_) = queue.peek(state="dead")
    assert first.error == "the payload does not fit the declared schema: field 'n' is a string that does not fit int64"
    counters = state.counters(client, "orders")
    assert (counters["acked"], counters["buried"], queue.depth().in_flight, queue.depth().leases) == (7, 2, 0, 0)


def test_a_batch_of_misfits_alone_is_empty_and_the_stream_continues(stream: Stream, queue: RedisMessageQueue) -> None:
    publish(queue, *"abcd", 4, *"efg")

    assert stream.run() == [0, 1]

    assert stream.written == {0: [], 1: [4]}
    assert (queue.depth().dead, queue.depth().ready, queue.depth().leases) == (7, 0, 0)


@pytest.mark.parametrize("values", [[0, "one", 2, 3], ["a", "b", "c", "d"]], ids=["some misfits", "misfits alone"])
@pytest.mark.parametrize("point", ["latest", "offsets", "partitions", "read", "sink", "commits"])
def test_a_driver_that_dies_buries_nothing_twice_and_loses_nothing(
    stream: Stream, queue: RedisMessageQueue, client: redis.Redis, point: Any, values: list[Any]
) -> None:
    publish(queue, *values, 4, "five")
    with pytest.raises(Killed):
        stream.run(kill_after=point)

    stream.run()
    stream.run()

    fitting = [n for n in (*values, 4) if isinstance(n, int)]
    assert stream.numbers == fitting
    assert len(letters(queue)) == len(values) + 2 - len(fitting)
    counters = state.counters(client, "orders")
    assert (counters["acked"], counters["buried"]) == (len(fitting), len(values) + 2 - len(fitting))
    assert (queue.depth().ready, queue.depth().in_flight, queue.depth().leases) == (0, 0, 0)


def test_a_stream_that_a_misfit_stopped_continues_when_it_buries(stream: Stream, queue: RedisMessageQueue) -> None:
    publish(queue, 0, "one", 2)
    for _ in range(2):
        with pytest.raises(PayloadError):
            stream.run("FAILFAST")

    assert stream.run() == [0]

    assert (stream.written, len(letters(queue)), queue.depth().leases) == ({0: [0, 2]}, 1, 0)


@pytest.mark.parametrize("point", ["latest", "offsets"])
def test_a_batch_that_was_buried_whole_does_not_stop_a_stream_of_another_mode(
    stream: Stream, queue: RedisMessageQueue, point: Any
) -> None:
    publish(queue, 0)
    stream.run()
    publish(queue, *"abcd", 4)
    with pytest.raises(Killed):
        stream.run(kill_after=point)

    stream.run("FAILFAST")

    assert (stream.numbers, queue.depth().dead, queue.stats().acked) == ([0, 4], 4, 2)


def test_a_driver_that_dies_before_the_burial_leaves_it_to_the_next(
    stream: Stream, queue: RedisMessageQueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    publish(queue, 0, "one", 2)

    def dies(lease: Lease, *verdicts: object) -> None:
        raise Killed("before the burial")

    with monkeypatch.context() as patch:
        patch.setattr(Lease, "settle", dies)
        with pytest.raises(Killed):
            stream.run()
    assert (queue.depth().dead, queue.depth().in_flight) == (0, 3)

    stream.run()

    assert (stream.numbers, len(letters(queue)), queue.depth().leases) == ([0, 2], 1, 0)


def test_a_done_batch_is_not_parsed_with_a_later_schema(
    stream: Stream, queue: RedisMessageQueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    publish(queue, 0, 1)
    with pytest.raises(Killed):
        stream.run(kill_after="commits")
    other = StructType([StructField("n", StructType([StructField("x", LongType())]))])

    def unreachable(lease: Lease) -> None:
        raise RedisUnavailableError("no server")

    with monkeypatch.context() as patch:  # the ack must be tried again, so the lease is held
        patch.setattr(Lease, "ack", unreachable)
        query = stream.query("BURY", schema=other)
        assert query.trigger() is None
    assert query.trigger() is None
    die(query.reader)

    assert (stream.numbers, queue.depth().dead, queue.stats().acked) == ([0, 1], 0, 2)


def test_a_lease_that_is_lost_before_the_burial_is_reported_as_lost(
    stream: Stream, queue: RedisMessageQueue, client: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    publish(queue, 0, "one")
    found = burying.bury_unfit

    def late(lease: Lease, columns: Columns) -> None:
        state.expire(client, queue.name)
        queue.claim(1).release()
        found(lease, columns)

    monkeypatch.setattr("sluicegate.spark.streaming.consumer.bury_unfit", late)

    with pytest.raises(LeaseLostError, match="of a micro-batch that Spark has planned is no longer held"):
        stream.run()
    assert (queue.depth().dead, queue.depth().ready) == (0, 2)


@pytest.mark.parametrize("point", ["latest", "offsets", "partitions", "sink", None])
def test_a_spark_that_does_not_pass_the_start_buries_too(stream: Stream, queue: RedisMessageQueue, point: Any) -> None:
    publish(queue, 0, "one", 2, 3, *"abcd", 8)
    if point is not None:
        with pytest.raises(Killed):
            stream.query("BURY", dialect=ZERO_ARGUMENTS, kill_after=point).run()

    stream.query("BURY", dialect=ZERO_ARGUMENTS).run()
    stream.query("BURY", dialect=ZERO_ARGUMENTS).run()

    assert sorted(stream.numbers) == [0, 2, 3, 8]
    assert (queue.depth().dead, queue.depth().ready, queue.depth().leases) == (5, 0, 0)


def test_a_permissive_stream_reads_the_corrupt_records(stream: Stream, queue: RedisMessageQueue) -> None:
    publish(queue, 0, "one")
    seen: list[dict[str, Any]] = []
    stream.sink = lambda batch, tables: seen.extend(  # type: ignore[method-assign]
        row for table in tables for row in table.to_pylist()
    )

    stream.run("PERMISSIVE", schema=CORRUPT)

    assert seen == [{"n": 0, "_corrupt_record": None}, {"n": None, "_corrupt_record": '{"n":"one"}'}]
    assert (queue.depth().dead, queue.stats().acked) == (0, 2)


# ---------------------------------------------------------------------- lease_batch


BURY = Columns.of(N, mode="BURY")


@pytest.fixture
def small_leases(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leases of four messages."""
    monkeypatch.setattr(_run_leases, "MAX_CLAIM_LIMIT", 4)


@pytest.fixture
def claim(queue: RedisMessageQueue, small_leases: None) -> Iterator[Any]:
    """Claim for run `r`; the heartbeats stop at the end."""
    made: list[RunLeases] = []

    def claim_for(run_id: str = "r") -> RunLeases:
        made.append(claim_run(queue, run_id, 100, 300, columns=BURY))
        return made[-1]

    yield claim_for
    for one in made:
        one.stop()


def slots(leases: RunLeases) -> list[tuple[str, list[int]]]:
    return [(row.lease_id, list(row.slots)) for row in leases.rows]


def test_a_batch_buries_at_the_claim_and_a_retry_has_the_same_rows(queue: RedisMessageQueue, claim: Any) -> None:
    publish(queue, 0, "one", 2, 3, *"abcd", 8)
    first = claim()
    assert slots(first) == [("r/b0", [1, 3, 4]), ("r/b2", [1])]
    assert (queue.depth().dead, queue.depth().in_flight, first.counts) == (5, 4, LeaseCounts(buried=5))

    second = claim()

    assert (slots(second), second.digest, second.state) == (slots(first), first.digest, LeaseState.OPEN)
    assert queue.depth().dead == 5
    second.ack()
    assert (queue.stats().acked, queue.depth().leases, second.counts.acked) == (4, 0, 4)
    third = claim()
    assert (third.state, third.leases) == (LeaseState.ACKED, [])


def test_a_batch_of_misfits_alone_has_no_rows_and_counts_as_done(queue: RedisMessageQueue, claim: Any) -> None:
    publish(queue, *"abcde")
    first = claim()
    assert (first.rows, first.state, queue.depth().dead) == ([], LeaseState.OPEN, 5)
    first.ack()
    first.end()
    publish(queue, 1)

    second = claim()

    assert (second.state, second.counts.buried, queue.depth().ready) == (LeaseState.ACKED, 5, 1)


def test_a_run_whose_rows_went_back_starts_again_after_burials(queue: RedisMessageQueue, claim: Any) -> None:
    publish(queue, 0, "one", 2, 3, 4, "five")
    first = claim()
    first.release()
    assert (queue.depth().ready, queue.depth().dead) == (4, 2)

    second = claim()

    assert second.state is LeaseState.OPEN
    assert sum(len(row.slots) for row in second.rows) == 4
    assert second.digest != first.digest
    second.ack()
    assert (queue.stats().acked, queue.depth().ready) == (4, 0)


def test_a_driver_that_dies_before_the_burial_of_its_batch_leaves_it_to_its_retry(
    queue: RedisMessageQueue, claim: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    publish(queue, 0, "one", 2)
    with monkeypatch.context() as patch:
        patch.setattr(_run_leases, "bury_unfit", lambda lease, columns: (_ for _ in ()).throw(Killed("dies")))
        patch.setattr(RunLeases, "end", lambda self: self.stop())
        with pytest.raises(Killed):
            claim()
    assert (queue.depth().dead, queue.depth().in_flight) == (0, 3)

    second = claim()

    assert (slots(second), queue.depth().dead) == ([("r/b0", [1, 3])], 1)


def test_the_retry_of_an_ack_that_had_begun_buries_nothing(
    queue: RedisMessageQueue, claim: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    publish(queue, *range(8))
    first = claim()
    with monkeypatch.context() as patch:
        patch.setattr(Lease, "ack", lambda lease: (_ for _ in ()).throw(Killed("dies")))
        with pytest.raises(Killed):
            first.ack()
    first.stop()
    other = Columns.of(pa.schema([("n", pa.list_(pa.int64()))]), mode="BURY")

    second = claim_run(queue, "r", 100, 300, columns=other)

    assert (second.state, queue.stats().acked, queue.depth().dead) == (LeaseState.ACKED, 8, 0)


def test_arguments_of_a_batch_are_refused_before_anything_is_claimed(queue: RedisMessageQueue) -> None:
    publish(queue, 1)
    no_session = cast("Any", None)

    for given in ({"mode": "BURY"}, {"schema": N, "mode": "other"}, {"column_name_of_corrupt_record": "x"}):
        with pytest.raises(ConfigurationError):
            lease_batch(no_session, queue, 1, **cast("dict[str, Any]", given))

    assert queue.depth().ready == 1


# ---------------------------------------------------------------------- in a session


@pytest.mark.spark
@pytest.mark.timeout(180)
def test_batches_and_drains_in_a_session_take_every_mode(spark: SparkSession, queue: RedisMessageQueue) -> None:
    publish(queue, 0, "one", 2)
    ddl = "n bigint, _corrupt_record string"
    with lease_batch(spark, queue, 10, schema=ddl, mode="permissive") as batch:
        rows = batch.df.select("n", "_corrupt_record").collect()
        assert [tuple(row) for row in rows] == [(0, None), (None, '{"n":"one"}'), (2, None)]
    with lease_batch(spark, queue, 10, schema=ddl, mode="BURY") as batch:
        assert [tuple(row) for row in batch.df.select("n", "_corrupt_record").collect()] == [(0, None), (2, None)]
        batch.ack()
    assert (queue.depth().dead, queue.stats().acked) == (1, 2)

    publish(queue, 3, "four", 5)

    def check(batch: pa.Table) -> None:
        assert json.dumps(batch["n"].to_pylist()) == "[3, 5]"

    summary = drain(spark, queue, check, schema="n bigint", mode="Bury", partitions=1)
    assert (summary.acked, summary.buried, summary.failed, queue.depth().dead) == (2, 1, 0, 2)
