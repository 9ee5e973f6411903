"""Each use of a queue once, under the Spark that is installed: `make test-matrix` runs it with versions before 4.3.

The suite, which runs with the newest, does not collect this file.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pyspark
import pytest

from sluicegate import RedisMessageQueue, RedisStreamQueue
from sluicegate.spark import drain, lease_batch, options
from sluicegate.spark.streaming.reader import ZeroArgumentStreamReader, make_reader
from tests.draining.helpers import Numbers, Output

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]
SAYS_FROM_WHERE = tuple(map(int, pyspark.__version__.split(".")[:2])) >= (4, 2)


def test_a_read_shows_the_queue_with_and_without_declared_columns(
    queue: RedisMessageQueue, numbers: Numbers, spark: SparkSession
) -> None:
    wanted = numbers(30)
    reader = spark.read.format("sluicegate").options(**options(queue))

    assert reader.load().filter("sequence > 10").count() == 20
    rows = reader.schema("n bigint, message_id string, message_headers map<string,string>").load().collect()
    assert sorted(row.n for row in rows) == wanted
    assert {row.message_id for row in rows} == {message.id for message in queue.peek(100)}
    assert (queue.depth().ready, queue.depth().leases) == (30, 0)


def test_a_stream_is_written_and_a_group_of_it_read_drained_and_streamed(
    queue: RedisMessageQueue, spark: SparkSession, tmp_path: Path
) -> None:
    stream = RedisStreamQueue(queue.name, url=queue.spec().url)
    read, drained, streamed = (stream.group(name, start="beginning") for name in ("read", "drained", "streamed"))
    rows = spark.range(0, 40, 1, 2).withColumnRenamed("id", "n")

    rows.write.format("sluicegate").mode("append").options(**options(stream)).save()

    shown = spark.read.format("sluicegate").schema("n bigint").options(**options(read), numPartitions="3").load()
    assert sorted(row.n for row in shown.collect()) == list(range(40))
    assert drain(spark, drained, lambda batch: None, partitions=2).acked == 40
    given = {**options(streamed), "consumer": "copy", "pollWaitSeconds": "0.05"}
    query = (
        spark.readStream.format("sluicegate")
        .options(**given)
        .load()
        .select("id")
        .writeStream.format("parquet")
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .start(str(tmp_path / "rows"))
    )
    try:
        query.processAllAvailable()
    finally:
        query.stop()
    assert spark.read.parquet(str(tmp_path / "rows")).distinct().count() == 40
    assert (read.depth().ready, drained.depth().ready, streamed.depth().ready) == (40, 0, 0)


@pytest.mark.parametrize("mode", ["direct", "staged"])
def test_a_write_publishes_each_row_once(mode: str, queue: RedisMessageQueue, spark: SparkSession) -> None:
    rows = spark.range(0, 50, 1, 2).withColumnRenamed("id", "n")
    writer = rows.write.format("sluicegate").mode("append").options(**options(queue))

    for _ in range(2):
        writer.options(writeMode=mode, writeId="once").save()

    assert sorted(message.json()["n"] for message in queue.peek(100)) == list(range(50))


def test_a_stream_hands_over_all_of_it_and_writes_into_another_queue(
    queue: RedisMessageQueue, numbers: Numbers, spark: SparkSession, tmp_path: Path
) -> None:
    wanted = numbers(40)
    target = RedisMessageQueue(f"{queue.name}-copy", url=queue.spec().url)

    def run() -> int:
        """Number of micro-batches of a run until nothing is left."""
        rows = spark.readStream.format("sluicegate").options(**options(queue), consumer="copy")
        writer = (
            rows.option("maxMessagesPerTrigger", "25")
            .load()
            .select("payload")
            .writeStream.format("sluicegate")
            .options(**options(target))
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
        )
        query = writer.trigger(availableNow=True).start()
        assert query.awaitTermination(120)
        commits = tmp_path / "checkpoint" / "commits"
        return sum(path.name.isdigit() for path in commits.iterdir())

    if SAYS_FROM_WHERE:
        assert run() == 2
    else:
        # One micro-batch, whatever its size, and acked by the next run: here with all of the rest, then with nothing.
        assert [run(), queue.depth().in_flight] == [1, 25]
        assert [run() > 1, queue.depth().in_flight < 25] == [True, True]
        while queue.depth().in_flight or queue.depth().ready:
            run()

    assert sorted(message.json()["n"] for message in target.peek(100)) == wanted
    assert (queue.stats().acked, queue.depth().ready, queue.depth().leases) == (40, 0, 0)
    target.purge("pending")


def test_a_stream_that_is_triggered_over_and_over_acks_what_it_handed_over(
    queue: RedisMessageQueue, numbers: Numbers, spark: SparkSession, tmp_path: Path
) -> None:
    numbers(40)
    given = {**options(queue), "consumer": "over", "maxMessagesPerTrigger": "25", "pollWaitSeconds": "0.05"}
    rows = spark.readStream.format("sluicegate").options(**given).load()

    query = (
        rows.select("id")
        .writeStream.format("parquet")
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .start(str(tmp_path / "rows"))
    )
    try:
        query.processAllAvailable()
    finally:
        query.stop()

    assert spark.read.parquet(str(tmp_path / "rows")).distinct().count() == 40
    assert (queue.stats().acked, queue.depth().in_flight) == (40, 0)


def test_the_reader_is_the_one_that_this_spark_can_call(queue: RedisMessageQueue) -> None:
    from sluicegate.spark._options import StreamOptions
    from sluicegate.spark.schemas import struct_of
    from sluicegate.tables.columns import Columns

    parsed = StreamOptions.parse({**options(queue), "consumer": "any"})
    reader = make_reader(parsed, struct_of(Columns.of(None)))
    assert isinstance(reader, ZeroArgumentStreamReader) is not SAYS_FROM_WHERE


def test_a_drain_works_on_each_message(
    queue: RedisMessageQueue, numbers: Numbers, spark: SparkSession, output: Output
) -> None:
    wanted = numbers(60)

    summary = drain(spark, queue, output.writer(), partitions=2, batch_size=20)

    assert (summary.acked, summary.returned, output.numbers()) == (60, 0, wanted)
    assert (queue.depth().ready, queue.depth().leases) == (0, 0)


def test_a_drain_into_declared_columns(queue: RedisMessageQueue, numbers: Numbers, spark: SparkSession) -> None:
    numbers(20)

    summary = drain(spark, queue, lambda rows: ["bury" if n == 7 else None for n in rows["n"].to_pylist()],
                    schema="n bigint", batch_format="arrow", partitions=2)  # fmt: skip

    assert (summary.acked, summary.buried) == (19, 1)


def test_a_leased_batch_reads_the_same_rows_at_each_action(
    queue: RedisMessageQueue, numbers: Numbers, spark: SparkSession
) -> None:
    wanted = numbers(30)

    with lease_batch(spark, queue, 100, schema="n bigint") as batch:
        assert sorted(row.n for row in batch.df.collect()) == wanted
        assert batch.ack_where(batch.df.filter("n < 10")) == 10
        assert batch.df.count() == 20
        batch.ack()

    assert (queue.stats().acked, queue.depth().ready, queue.depth().leases) == (30, 0, 0)
