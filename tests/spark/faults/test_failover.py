"""Spark on Sentinel and on a cluster of three, whose primary dies during calls of a drain, a stream or a writer.

Each test ends only when the primary did have calls, and nothing but the gateway repeated them: no task of Spark failed.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from sluicegate import RedisMessageQueue
from sluicegate.core.keys import QueueKeys
from sluicegate.spark import SluicegateDataSource, drain, options
from tests.spark.faults.blocking import WORKER_SECONDS, arrived, blocking
from tests.spark.faults.failing_over import Failover, no_task_fails
from tests.spark.faults.points import Fault
from tests.spark.faults.sinks import Sink, check_acked_once, check_nothing_lost, publish
from tests.spark.faults.sources import faulty_source
from tests.spark.faults.streaming import QUERY_SECONDS, Stream
from tests.support import state
from tests.support.axes import quick
from tests.support.servers import programs
from tests.support.topologies import ClusterServers, SentinelServers
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]  # the first test starts the session

Servers = SentinelServers | ClusterServers
KEY = QueueKeys("orders").pending
CHUNK = 20
RETRIES: dict[str, Any] = {"retry_budget_seconds": 60, "retry_max_delay_seconds": 0.2}


@pytest.fixture(scope="module", params=[pytest.param("sentinel", marks=pytest.mark.full), "cluster"])
def topology(request: pytest.FixtureRequest) -> Iterator[Servers]:
    made: Servers
    made = (
        SentinelServers(programs()[0]) if request.param == "sentinel" else ClusterServers(programs()[0], replicas=True)
    )
    with made:
        yield made


@pytest.fixture
def failover(topology: Servers) -> Failover:
    """Return a failover over servers without data, all of them up and in sync."""
    made = Failover(topology, KEY)
    made.restore()
    return made


@pytest.fixture
def queue(topology: Servers, failover: Failover) -> Iterator[RedisMessageQueue]:
    made = RedisMessageQueue("orders", url=topology.url, enable_completed_queue=True, **RETRIES)
    yield made
    made.close()


def check(topology: Servers, queue: RedisMessageQueue, sink: Sink, truth: dict[str, int]) -> None:
    check_nothing_lost(sink, truth)
    assert sink.duplicates() == {}
    with topology.primary(KEY) as client:
        check_acked_once(queue, client, truth)
        state.check(client)


def write(spark: SparkSession, queue: RedisMessageQueue, source: type[SluicegateDataSource], mode: str) -> None:
    """`CHUNK` times 6 numbers, in two tasks, ten at a time."""
    spark.dataSource.register(source)
    frame = spark.range(0, 6 * CHUNK, 1, 2).withColumnRenamed("id", "n")
    given = {"writeMode": mode, "batchSize": "10"}
    frame.write.format(source.name()).mode("append").options(**options(queue), **given).save()


@pytest.mark.full
def test_what_is_written_is_streamed_on_and_drained(
    spark: SparkSession, topology: Servers, queue: RedisMessageQueue, sink: Sink, tmp_path: Path
) -> None:
    """From a staged write to a queue, by a stream with a writer to a second, which a drain empties."""
    second = RedisMessageQueue("archive", url=topology.url, enable_completed_queue=True, **RETRIES)
    if isinstance(topology, ClusterServers):
        owners = {topology.owner(QueueKeys(each.name).pending) for each in (queue, second)}
        assert len(owners) == 2, "the queues are on different servers"

    write(spark, queue, SluicegateDataSource, "staged")
    given = {"consumer": "copier", "maxMessagesPerTrigger": "50", "pollWaitSeconds": "0.05"}
    frame = spark.readStream.format("sluicegate").options(**options(queue), **given).load().select("payload")
    writer = frame.writeStream.format("sluicegate").outputMode("append").options(**options(second))
    query = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).trigger(availableNow=True).start()
    try:
        assert query.awaitTermination(QUERY_SECONDS)
    finally:
        query.stop()
    summary = drain(spark, second, sink.writer(), partitions=2, batch_size=CHUNK)

    assert summary.acked == 6 * CHUNK
    assert sorted(n for _, n in sink.rows()) == list(range(6 * CHUNK))
    for each in (queue, second):
        with topology.primary(QueueKeys(each.name).pending) as client:
            counters = state.counters(client, each.name)
            assert (counters["published"], counters["acked"]) == (6 * CHUNK, 6 * CHUNK)
            state.check(client)
    second.close()


@pytest.mark.full  # the core's own failovers stand for it in the quick lane
def test_a_drain_goes_on_when_the_primary_dies(
    spark: SparkSession, failover: Failover, queue: RedisMessageQueue, sink: Sink, tmp_path: Path
) -> None:
    truth = publish(queue, 10 * CHUNK)
    with no_task_fails(spark), ThreadPoolExecutor(1) as pool:
        running = pool.submit(
            drain, spark, queue, sink.writer(blocking(tmp_path)), partitions=2, batch_size=CHUNK, lease_seconds=600
        )
        wait_until(lambda: arrived(tmp_path, 2), "both partitions are at work", WORKER_SECONDS)
        failover.pause()
        (tmp_path / "go on").touch()
        failover.crash(calls=2)
        summary = running.result(timeout=120)

    assert summary.acked == len(truth)
    assert [part.taken_over for part in summary.partitions] == [0, 0]
    check(failover.topology, queue, sink, truth)


@pytest.mark.full  # as the drain's above
def test_a_stream_goes_on_when_the_primary_dies(
    spark: SparkSession, failover: Failover, queue: RedisMessageQueue, sink: Sink, tmp_path: Path
) -> None:
    truth = publish(queue, 3 * CHUNK)
    stream = Stream(spark, queue, sink, tmp_path)
    with ThreadPoolExecutor(1) as pool:
        crashing: list[Future[None]] = []

        def before(number: int) -> None:
            if number == 1:
                failover.pause()
                crashing.append(pool.submit(failover.crash, calls=1))

        assert stream.run(before=before) is None

    for each in crashing:
        each.result()
    assert [len(runs) for runs in stream.batches.values()] == [1, 1, 1]
    check(failover.topology, queue, sink, truth)


POINTS = {
    "a task that publishes": ("direct", "publish"),
    "a task that stages": ("staged", "stage_rows"),
    "the commit": ("staged", "publish"),
}


@pytest.mark.full  # as the drain's above
@pytest.mark.parametrize("point", quick(POINTS, "the commit"))
def test_a_write_goes_on_when_the_primary_dies(
    spark: SparkSession, failover: Failover, queue: RedisMessageQueue, tmp_path: Path, point: str
) -> None:
    mode, script = POINTS[point]
    marker = tmp_path / "stands"

    def crash_in_the_middle() -> None:
        wait_until(marker.exists, "the writer is at work", WORKER_SECONDS)
        try:
            failover.pause()
        finally:
            (tmp_path / "go on").touch()
        failover.crash(calls=1)

    with no_task_fails(spark), ThreadPoolExecutor(1) as pool:
        crashing = pool.submit(crash_in_the_middle)
        # In this thread: Spark finds a data source by the name only where its session is the thread's.
        write(spark, queue, faulty_source(Fault("after", script, 2, "block", str(marker))), mode)
        crashing.result()

    assert sorted(message.json()["n"] for message in queue.peek(1000)) == list(range(6 * CHUNK))
    with failover.topology.primary(KEY) as client:
        assert state.counters(client, queue.name)["published"] == 6 * CHUNK
        state.check(client)
