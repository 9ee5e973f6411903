"""The streaming source under a real Spark."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import pytest
import redis
from pyspark.errors import StreamingQueryException

from sluicegate import RedisMessageQueue
from sluicegate.spark._options import options
from sluicegate.spark.datasource import SluicegateDataSource
from tests.draining.helpers import Numbers
from tests.support import state
from tests.support.snippets import snippet
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import DataStreamReader, StreamingQuery

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]


class Live:
    """Queries of one consumer into a folder of files, one per micro-batch, overwritten when it is written again."""

    def __init__(self, spark: SparkSession, queue: RedisMessageQueue, folder: Path) -> None:
        self.spark, self.queue, self.folder = spark, queue, folder
        self.checkpoint = folder / "checkpoint"
        self.output = folder / "output"
        self.output.mkdir()

    def reader(self, **more: str) -> DataStreamReader:
        self.spark.dataSource.register(SluicegateDataSource)
        given = {"consumer": "etl", "pollWaitSeconds": "0.05", **more}
        return self.spark.readStream.format("sluicegate").options(**options(self.queue), **given)

    def start(
        self,
        *,
        trigger: Mapping[str, Any] = MappingProxyType({"availableNow": True}),
        checkpoint: Path | None = None,
        fail: str = "",
        **more: str,
    ) -> StreamingQuery:
        folder = self.output

        def write(rows: DataFrame, batch: int) -> None:
            found = sorted(
                (row.sequence, row.delivery_count, row.id, json.loads(row.payload)["n"]) for row in rows.collect()
            )
            kept = folder / f"{batch}.json"
            if kept.exists():
                kept.rename(folder / f"{batch}.earlier.json")
            kept.write_text(json.dumps(found))
            if fail == "after write":
                raise RuntimeError("killed between sink and commit")

        writer = self.reader(**more).load().writeStream.foreachBatch(write)
        writer = writer.option("checkpointLocation", str(checkpoint or self.checkpoint))
        return writer.trigger(**trigger).start()

    def run(self, **more: Any) -> list[dict[str, Any]]:
        query = self.start(**more)
        try:
            assert query.awaitTermination(300)
        finally:
            query.stop()
        return [json.loads(progress.json) for progress in query.recentProgress]

    def numbers(self) -> list[int]:
        files = sorted(self.output.glob("[0-9].json"), key=lambda path: int(path.stem))
        return [n for file in files for *_, n in json.loads(file.read_text())]

    def written(self, name: str) -> list[Any]:
        found: list[Any] = json.loads((self.output / f"{name}.json").read_text())
        assert found
        return found


@pytest.fixture
def live(spark: SparkSession, queue: RedisMessageQueue, tmp_path: Path) -> Live:
    return Live(spark, queue, tmp_path)


def nothing_is_left(queue: RedisMessageQueue) -> bool:
    depth = queue.depth()
    return (depth.ready, depth.in_flight, depth.leases, depth.delayed, depth.dead) == (0, 0, 0, 0, 0)


def test_available_now_drains_and_acks_everything(live: Live, queue: RedisMessageQueue, numbers: Numbers) -> None:
    expected = numbers(2500)

    progress = live.run(maxMessagesPerTrigger="1000")
    assert [batch["numInputRows"] for batch in progress] == [1000, 1000, 500]
    assert [batch["sources"][0]["latestOffset"]["ready"] for batch in progress] == [1500, 500, 0]
    assert live.numbers() == expected
    assert nothing_is_left(queue)
    assert not any(batch["numInputRows"] for batch in live.run())
    assert {file.name for file in (live.checkpoint / "offsets").glob("[0-9]*")} == {"0", "1", "2"}


def test_a_query_that_dies_between_sink_and_commit_gets_the_same_rows_again(
    live: Live, queue: RedisMessageQueue, numbers: Numbers, client: redis.Redis
) -> None:
    expected = numbers(20)
    with pytest.raises(StreamingQueryException, match="killed between sink and commit"):
        live.run(fail="after write")
    assert (live.checkpoint / "offsets" / "0").exists()
    assert not (live.checkpoint / "commits" / "0").exists()
    assert queue.depth().in_flight == 20
    queue.publish({"n": 20})

    live.run()

    assert live.written("0") == live.written("0.earlier")
    assert live.numbers() == [*expected, 20]
    assert nothing_is_left(queue)
    assert state.counters(client, "orders")["acked"] == 21


def test_a_deleted_commit_of_a_stopped_query_gives_the_same_rows(
    live: Live, queue: RedisMessageQueue, numbers: Numbers, client: redis.Redis
) -> None:
    numbers(20)
    query = live.start(trigger={"processingTime": "1 hour"})
    wait_until((live.checkpoint / "commits" / "0").exists, "the first batch is committed")
    query.stop()
    assert queue.depth().in_flight == 20
    for name in ("0", ".0.crc"):
        (live.checkpoint / "commits" / name).unlink()

    live.run()

    assert live.written("0") == live.written("0.earlier")
    assert nothing_is_left(queue)
    assert state.counters(client, "orders")["acked"] == 20


def test_a_deleted_checkpoint_begins_anew_with_all_that_is_not_acked(
    live: Live, queue: RedisMessageQueue, numbers: Numbers, client: redis.Redis
) -> None:
    expected = numbers(20)
    with pytest.raises(StreamingQueryException):
        live.run(fail="after write")
    shutil.rmtree(live.checkpoint)

    live.run()

    assert sorted(live.numbers()) == expected
    assert nothing_is_left(queue)
    assert state.counters(client, "orders")["acked"] == 20


@pytest.mark.full  # the epoch of a consumer has tests without a query in the quick lane
def test_a_second_query_with_the_same_consumer_ends_the_first(
    live: Live, queue: RedisMessageQueue, numbers: Numbers, tmp_path: Path
) -> None:
    numbers(20)
    first = live.start(trigger={"processingTime": "0 seconds"})
    wait_until(lambda: queue.depth().in_flight == queue.depth().ready == 0, "the first query has acked everything")
    numbers(5)
    wait_until(lambda: queue.depth().in_flight == queue.depth().ready == 0, "it is at work")

    live.run(checkpoint=tmp_path / "another")

    with pytest.raises(StreamingQueryException, match="another streaming query was started with consumer 'etl'"):
        first.awaitTermination(300)
    with pytest.raises(StreamingQueryException, match="another streaming query was started with consumer 'etl'"):
        live.run()


def test_rows_are_typed_as_declared(live: Live, queue: RedisMessageQueue, numbers: Numbers, tmp_path: Path) -> None:
    expected = numbers(30)
    rows = live.reader().schema("n long, message_id string").load()
    writer = rows.writeStream.format("memory").queryName("typed").option("checkpointLocation", str(tmp_path / "typed"))
    query = writer.trigger(availableNow=True).start()
    assert query.awaitTermination(300)
    found = live.spark.table("typed").collect()
    assert sorted(row.n for row in found) == expected
    assert len({row.message_id for row in found}) == 30
    assert nothing_is_left(queue)


def test_the_listener_of_the_page_reports_the_backlog_of_a_live_query(
    live: Live, spark: SparkSession, queue: RedisMessageQueue, numbers: Numbers, capfd: pytest.CaptureFixture[str]
) -> None:
    names: dict[str, Any] = {"spark": spark, "queue": queue}
    exec(snippet("spark-listener"), names)  # noqa: S102  (it is ours, and is shown to be run)
    shown: list[Any] = []
    names["listener"]._show = lambda progress: (shown.append(progress), names["show"](progress))
    try:
        numbers(30)
        live.run(maxMessagesPerTrigger="20")
        wait_until(lambda: [one.rows for one in shown if one.rows] == [20, 10], "both batches are reported", 60)
    finally:
        spark.streams.removeListener(names["listener"])

    assert {one.consumer for one in shown} == {"etl"}
    assert [one.redelivered for one in shown if one.rows] == [0, 0]
    assert len(capfd.readouterr().out.splitlines()) >= 2
