"""Writes into a queue whose tasks, commits and micro-batches end at every point: each row is published once."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import redis

from sluicegate import RedisMessageQueue
from sluicegate.spark import SluicegateDataSource, options
from tests.spark.faults.points import Fault
from tests.spark.faults.sinks import check_acked_once, publish
from tests.spark.faults.sources import faulty_source
from tests.spark.faults.streaming import QUERY_SECONDS, newest_commit, remove_commit
from tests.support import state
from tests.support.axes import quick
from tests.support.flavours import MakeQueue
from tests.support.servers import RedisServer

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]  # the first test starts the session

ROWS = 200  # in two tasks, ten at a time
NUMBERS = sorted(4 * [*range(ROWS // 4)])  # each is there twice in each task: rows that are alike stay several
# Mode, when, script, how manieth in its process; and whether the job fails, because nobody repeats a commit.
POINTS = {
    "a task before it publishes more": ("direct", "before", "publish", 2, False),
    "a task after it published": ("direct", "after", "publish", 2, False),
    "a task after it staged": ("staged", "after", "stage_rows", 2, False),
    "the commit before it publishes": ("staged", "before", "publish", 1, True),
    "the commit after it published a part": ("staged", "after", "publish", 2, True),
}


def write(spark: SparkSession, queue: RedisMessageQueue, source: type[SluicegateDataSource], mode: str) -> None:
    spark.dataSource.register(source)
    frame = spark.range(0, ROWS, 1, 2).selectExpr(f"id % {ROWS // 4} AS n")
    given = {"writeId": "nightly", "writeMode": mode, "batchSize": "10"}
    frame.write.format(source.name()).mode("append").options(**options(queue), **given).save()


def numbers(queue: RedisMessageQueue) -> list[int]:
    return sorted(message.json()["n"] for message in queue.peek(10 * ROWS))


@pytest.mark.parametrize("point", quick(POINTS, "the commit after it published a part"))
def test_a_write_that_ends_at_any_point_publishes_each_row_once(
    spark: SparkSession, queue: RedisMessageQueue, client: redis.Redis, tmp_path: Path, point: str
) -> None:
    mode, when, script, number, fails = POINTS[point]
    marker = tmp_path / "happened"
    source = faulty_source(Fault(when, script, number, "kill", str(marker)))

    if fails:
        with pytest.raises(Exception, match=r"(?i)python"):
            write(spark, queue, source, mode)
        assert len(numbers(queue)) < ROWS
        write(spark, queue, SluicegateDataSource, mode)
    else:
        write(spark, queue, source, mode)

    assert marker.exists()
    assert numbers(queue) == NUMBERS
    assert state.counters(client, queue.name)["published"] == ROWS


@pytest.mark.full  # a write that ends at any point stands for it in the quick lane
@pytest.mark.parametrize("mode", quick(["direct", "staged"], "staged"))
def test_a_stream_from_queue_to_queue_carries_each_message_once_whatever_is_killed_and_replayed(
    spark: SparkSession,
    queue: RedisMessageQueue,
    client: redis.Redis,
    server: RedisServer,
    make_queue: MakeQueue,
    tmp_path: Path,
    mode: str,
) -> None:
    """A worker dies while it publishes; then the query, after a commit and before its ack, with the commit lost."""
    truth = publish(queue, 60)
    target = make_queue("copies", url=server.url)
    checkpoint = tmp_path / "checkpoint"
    script = "publish" if mode == "direct" else "stage_rows"
    for name, fault in (
        ("worker", Fault("after", script, 1, "kill", str(tmp_path / "worker"))),
        ("planner", Fault("before", "settle", 1, "kill", str(tmp_path / "planner"))),
        ("none", None),
    ):
        source = SluicegateDataSource if fault is None else faulty_source(fault)
        spark.dataSource.register(source)
        given = {"consumer": "copier", "maxMessagesPerTrigger": "20", "pollWaitSeconds": "0.05"}
        frame = spark.readStream.format(source.name()).options(**options(queue), **given).load()
        writer = frame.select("payload").writeStream.format(source.name()).outputMode("append")
        writer = writer.options(**options(target), writeMode=mode, batchSize="5")
        query = writer.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True).start()
        try:
            assert query.awaitTermination(QUERY_SECONDS)
        except Exception:
            assert name == "planner"
            remove_commit(checkpoint, newest_commit(checkpoint))
        finally:
            query.stop()
        assert fault is None or Path(fault.marker).exists()
        if name == "worker":
            truth |= publish(queue, 60, first=60)

    found = sorted(json.loads(message.payload)["n"] for message in target.peek(1000))
    assert found == sorted(truth.values())
    assert state.counters(client, "copies")["published"] == len(truth)
    check_acked_once(queue, client, truth)
