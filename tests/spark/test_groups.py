"""Every use of a queue with a group of a stream in its place, in a real Spark; other groups never notice."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
import redis
from pyspark.errors import StreamingQueryException
from pyspark.sql.types import StructType

from sluicegate import ConsumerGroup, LeaseState, Message, RedisStreamQueue
from sluicegate.errors import ConfigurationError, DrainFailedError
from sluicegate.spark import DrainContext, dead_letters, drain, lease_batch, options, redrive_selected
from sluicegate.spark._options import WriteOptions
from sluicegate.spark.datasource import SluicegateDataSource
from sluicegate.spark.writing import staging
from sluicegate.spark.writing.plan import plan_write
from tests.draining.helpers import Numbers, Output, failing_on
from tests.spark.faults.points import Fault, Faulty
from tests.spark.harness import Checkpoint, Query, Save

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from tests.support.servers import RedisServer

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]  # the first of them starts the session
NOTHING = (0, 0, 0, 0)


@pytest.fixture
def stream(server: RedisServer, client: redis.Redis) -> Iterator[RedisStreamQueue]:
    """Yield a stream that other processes can make from its spec."""
    with RedisStreamQueue("events", url=server.url) as made:
        yield made


@pytest.fixture
def billing(stream: RedisStreamQueue) -> Iterator[ConsumerGroup]:
    """Yield a group that is there before the first message."""
    with stream.group("billing") as made:
        made.create("beginning")
        yield made


@pytest.fixture
def audit(stream: RedisStreamQueue) -> Iterator[ConsumerGroup]:
    """Yield a second group of the same stream."""
    with stream.group("audit") as made:
        made.create("beginning")
        yield made


@pytest.fixture
def numbers(stream: RedisStreamQueue) -> Numbers:
    """Publishes the numbers below a count, each as one message, and gives them."""

    def publish(count: int) -> list[int]:
        assert stream.publish_many({"n": n} for n in range(count)).accepted == count
        return list(range(count))

    return publish


def left(group: ConsumerGroup) -> tuple[int, int, int, int]:
    """Return how many messages wait, are delayed, are leased and are dead."""
    depth = group.depth()
    return depth.ready, depth.delayed, depth.in_flight, depth.dead


def published(client: redis.Redis, stream: RedisStreamQueue) -> list[int]:
    """Return what any client of Redis reads of a stream."""
    return sorted(json.loads(fields[b"data"])["n"] for _, fields in client.xrange(stream.key.stream))


# ---------------------------------------------------------------------- drain


def test_a_drain_acks_for_its_group_alone(
    spark: SparkSession, billing: ConsumerGroup, audit: ConsumerGroup, numbers: Numbers, output: Output
) -> None:
    wanted = numbers(500)

    summary = drain(spark, billing, output.writer(), partitions=2, batch_size=100)

    assert (summary.acked, summary.failed, output.numbers()) == (500, 0, wanted)
    assert (left(billing), left(audit)) == (NOTHING, (500, 0, 0, 0))
    assert drain(spark, audit, lambda batch: None, batch_size=500).acked == 500


def test_a_message_that_fails_and_one_that_is_buried_are_the_groups_own(
    spark: SparkSession, billing: ConsumerGroup, audit: ConsumerGroup, numbers: Numbers, output: Output
) -> None:
    numbers(60)

    def bury_seven(rows: pa.Table, ctx: DrainContext) -> None:
        ctx.bury(rows.filter(pc.equal(rows["n"], 7)), error="seven")

    assert drain(spark, billing, bury_seven, batch_format="arrow", schema="n int").buried == 1
    assert (left(billing), left(audit)) == ((0, 0, 0, 1), (60, 0, 0, 0))

    with pytest.raises(DrainFailedError) as caught:
        drain(spark, audit, output.writer(failing_on(9)), partitions=1)
    assert (caught.value.summary.acked, caught.value.summary.failed) == (59, 1)
    assert left(audit)[1:] == (1, 0, 0)


@pytest.mark.parametrize(
    ("when", "script", "twice"), [("after", "claim", 0), ("before", "settle", 20)], ids=["claimed", "processed"]
)
def test_a_killed_worker_is_replaced_by_one_that_takes_its_lease_of_the_group_over(
    spark: SparkSession,
    billing: ConsumerGroup,
    audit: ConsumerGroup,
    numbers: Numbers,
    tmp_path: Path,
    when: str,
    script: str,
    twice: int,
) -> None:
    wanted = numbers(200)
    marker = tmp_path / "happened"
    folder = str(tmp_path)

    def process(batch: list[Message], ctx: DrainContext) -> None:
        with open(f"{folder}/{ctx.lease_key}-{ctx.attempt}.json", "w") as file:
            file.write(str([message.json()["n"] for message in batch]))

    handler = Faulty(process, Fault(when, script, 2, "kill", str(marker)))
    summary = drain(spark, billing, handler, partitions=2, batch_size=20, lease_seconds=600)

    assert marker.exists()
    done = [n for file in tmp_path.glob("*.json") for n in json.loads(file.read_text())]
    assert (sorted(set(done)), len(done)) == (wanted, 200 + twice)
    assert (summary.acked, summary.returned, billing.stats().acked) == (200, 0, 200)
    assert sum(part.taken_over for part in summary.partitions) == 1
    assert (left(billing), left(audit)) == (NOTHING, (200, 0, 0, 0))


# ---------------------------------------------------------------------- lease_batch


def test_a_leased_batch_of_a_group_reads_the_same_rows_until_it_is_acked(
    spark: SparkSession, billing: ConsumerGroup, audit: ConsumerGroup, numbers: Numbers
) -> None:
    wanted = numbers(3000)

    with suppress(ZeroDivisionError), lease_batch(spark, billing, 2500, run_id="r", on_error="keep") as batch:
        first = batch.lease_key
        assert batch.df.count() == 2500
        raise ZeroDivisionError
    with lease_batch(spark, billing, 2500, run_id="r", schema="n int") as batch:
        assert (batch.state, batch.lease_key) == (LeaseState.OPEN, first)
        assert sorted(row.n for row in batch.df.select("n").collect()) == wanted[:2500]
        assert batch.ack_where(batch.df.filter("n < 10")) == 10
        batch.ack()

    assert (left(billing), billing.stats().acked, left(audit)) == ((500, 0, 0, 0), 2500, (3000, 0, 0, 0))


# ---------------------------------------------------------------------- read


def test_a_read_shows_what_the_group_has_not_been_delivered_and_changes_nothing(
    spark: SparkSession, stream: RedisStreamQueue, billing: ConsumerGroup, numbers: Numbers, server: RedisServer
) -> None:
    numbers(300)
    with billing.claim(100) as lease:
        lease.bury(lease.messages[:2], error="odd", reason="broken")
        lease.release(lease.messages[2:10])
        lease.nack(lease.messages[10:15], delay_seconds=600)
        lease.ack()
    before = billing.lag(), left(billing)
    given = {"url": server.url, "stream": stream.name, "group": "billing"}

    def shown(state: str, **more: str) -> list[int]:
        rows = spark.read.format("sluicegate").schema("n int").options(**given, state=state, **more).load()
        return sorted(row.n for row in rows.collect())

    spark.dataSource.register(SluicegateDataSource)
    assert shown("pending", numPartitions="3") == list(range(100, 300))
    assert shown("pending", limit="30") == list(range(100, 130))
    assert shown("returned") == list(range(2, 10))
    assert shown("delayed") == list(range(10, 15))
    assert shown("dead") == [0, 1]
    spark.sql(
        f"CREATE OR REPLACE TEMPORARY VIEW unread USING sluicegate OPTIONS (url '{server.url}', "
        f"stream '{stream.name}', group 'billing')"
    )
    assert spark.sql("SELECT count(*) FROM unread").collect()[0][0] == 200
    assert (billing.lag(), left(billing)) == before

    letters = dead_letters(spark, billing)
    assert redrive_selected(billing, letters.where("error = 'odd'").limit(1)).redriven == 1
    assert left(billing) == (209, 5, 0, 1)


# ---------------------------------------------------------------------- readStream and writeStream


def test_a_query_over_a_group_publishes_into_a_stream_and_a_restart_repeats_nothing(
    spark: SparkSession,
    server: RedisServer,
    billing: ConsumerGroup,
    audit: ConsumerGroup,
    numbers: Numbers,
    client: redis.Redis,
    tmp_path: Path,
) -> None:
    spark.dataSource.register(SluicegateDataSource)
    target = RedisStreamQueue("invoices", url=server.url)

    def run() -> None:
        rows = spark.readStream.format("sluicegate").options(**options(billing), consumer="etl")
        writer = rows.option("maxMessagesPerTrigger", "50").load().select("payload").writeStream.format("sluicegate")
        query = (
            writer.options(**options(target), checkpointLocation=str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        assert query.awaitTermination(120)

    wanted = numbers(120)
    run()
    assert (published(client, target), left(billing)) == (wanted, NOTHING)
    run()
    assert published(client, target) == wanted
    assert (billing.stats().acked, left(audit)) == (120, (120, 0, 0, 0))


@pytest.mark.full  # the restart of a query stands for it in the quick lane
def test_a_query_over_a_group_that_dies_before_its_commit_gets_the_same_rows_again(
    spark: SparkSession, stream: RedisStreamQueue, billing: ConsumerGroup, numbers: Numbers, tmp_path: Path
) -> None:
    spark.dataSource.register(SluicegateDataSource)
    seen: list[list[tuple[str, int, int]]] = []

    def run(before_commit: Callable[[], None]) -> None:
        def write(rows: DataFrame, number: int) -> None:
            seen.append(sorted((row.id, row.sequence, row.delivery_count) for row in rows.collect()))
            before_commit()

        rows = spark.readStream.format("sluicegate").options(**options(billing), consumer="etl").load()
        query = rows.writeStream.foreachBatch(write).option("checkpointLocation", str(tmp_path / "checkpoint"))
        assert query.trigger(availableNow=True).start().awaitTermination(120)

    def die() -> None:
        raise RuntimeError("killed between sink and commit")

    numbers(20)
    with pytest.raises(StreamingQueryException, match="killed between sink and commit"):
        run(die)
    assert left(billing) == (0, 0, 20, 0)
    stream.publish({"n": 20})

    run(lambda: None)

    assert seen[1] == seen[0]
    assert [len(rows) for rows in seen] == [20, 20, 1]
    assert (left(billing), billing.stats().acked) == (NOTHING, 21)


def test_queries_over_two_groups_may_have_one_consumer_and_neither_fences_the_other(
    stream: RedisStreamQueue, billing: ConsumerGroup, audit: ConsumerGroup, numbers: Numbers
) -> None:
    rows: dict[str, list[int]] = {"billing": [], "audit": []}

    def query(group: ConsumerGroup) -> Query:
        def sink(_: int, tables: list[pa.Table]) -> None:
            found = [json.loads(payload)["n"] for table in tables for payload in table["payload"].to_pylist()]
            rows[group.group_name or ""].extend(found)

        given = {**options(group), "consumer": "etl", "maxMessagesPerTrigger": "10", "pollWaitSeconds": "0"}
        return Query(SluicegateDataSource, given, Checkpoint(), sink)

    wanted = numbers(30)
    queries = [query(billing), query(audit)]
    for _ in range(4):
        for one in queries:
            one.trigger()

    assert rows == {"billing": wanted, "audit": wanted}
    assert (billing.stats().acked, audit.stats().acked) == (30, 30)


# ---------------------------------------------------------------------- write


@pytest.mark.parametrize("mode", ["direct", "staged"])
def test_a_write_to_a_stream_publishes_each_row_once_for_every_group(
    spark: SparkSession,
    stream: RedisStreamQueue,
    billing: ConsumerGroup,
    audit: ConsumerGroup,
    client: redis.Redis,
    server: RedisServer,
    mode: str,
) -> None:
    spark.dataSource.register(SluicegateDataSource)
    rows = spark.range(0, 400, 1, 2).selectExpr("id as n", "map('type', 'made') as headers")
    writer = rows.write.format("sluicegate").mode("append")

    for _ in range(2):
        given = {"url": server.url, "stream": stream.name, "headersColumn": "headers"}
        writer.options(**given, writeMode=mode, writeId="once").save()

    assert published(client, stream) == list(range(400))
    assert (left(billing), left(audit)) == ((400, 0, 0, 0), (400, 0, 0, 0))
    (_, fields) = client.xrange("sluicegate:{events}:stream", count=1)[0]
    assert set(fields) == {b"data", b"headers"}
    assert json.loads(fields[b"headers"]) == {"type": "made"}


@pytest.mark.parametrize("mode", ["direct", "staged"])
def test_rows_with_keys_are_published_to_a_stream_once_whatever_the_write(
    spark: SparkSession, stream: RedisStreamQueue, billing: ConsumerGroup, client: redis.Redis, mode: str
) -> None:
    spark.dataSource.register(SluicegateDataSource)
    rows = spark.range(0, 100, 1, 2).selectExpr("id % 60 as n")
    for _ in range(2):
        writer = rows.write.format("sluicegate").mode("append").options(**options(stream), writeMode=mode)
        writer.option("deduplicationKey", "{n}").save()

    assert published(client, stream) == list(range(60))
    assert left(billing) == (60, 0, 0, 0)


def test_a_staged_write_to_a_stream_whose_commit_ended_half_way_is_completed_and_repeats_no_row(
    stream: RedisStreamQueue, client: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = {**options(stream), "writeMode": "staged", "writeId": "once", "batchSize": "10"}
    tables = [pa.table({"n": list(range(first, first + 40))}) for first in (0, 40)]
    plain = staging._commit_write

    def failing(sender: Any, write_id: str, verb: Any, stages: Any) -> Any:
        if verb == "finish":  # everything of the first stage is published, and nothing says so yet
            raise RuntimeError("killed")
        return plain(sender, write_id, verb, stages)

    with monkeypatch.context() as patch:
        patch.setattr(staging, "_commit_write", failing)
        with pytest.raises(RuntimeError, match="killed"):
            Save(SluicegateDataSource, given, tables).run()
    assert len(published(client, stream)) == 40

    for _ in range(2):
        Save(SluicegateDataSource, given, tables).run()

    assert published(client, stream) == list(range(80))


def test_a_stream_is_never_full_so_a_write_has_no_options_for_that(stream: RedisStreamQueue) -> None:
    parsed = WriteOptions.parse({**options(stream), "maxPendingLength": "5", "overload": "raise"})
    with pytest.raises(
        ConfigurationError, match="stream 'events' is never full, so it has no maxPendingLength and overload"
    ):
        plan_write(parsed, StructType().add("n", "long"), overwrite=False)
