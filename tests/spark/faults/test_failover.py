"""Spark on Sentinel and on a cluster of three, whose primary dies while a drain, a stream or a writer is at work."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import redis

from sluicegate import RedisMessageQueue
from sluicegate.core.keys import QueueKeys
from sluicegate.spark import SluicegateDataSource, drain, options
from tests.conformance import state
from tests.conformance.servers import programs
from tests.conformance.waiting import wait_until
from tests.spark.faults.holding import WORKER_SECONDS, arrived, holding
from tests.spark.faults.points import Fault
from tests.spark.faults.sinks import Sink, check_acked_once, check_nothing_lost, publish
from tests.spark.faults.sources import faulty_source
from tests.spark.faults.streaming import QUERY_SECONDS, Stream
from tests.topologies.servers import ClusterServers, SentinelServers, Topology

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]  # the first test starts the session

KEY = QueueKeys("orders").pending
CHUNK = 20
RETRIES: dict[str, Any] = {"retry_budget_seconds": 60, "retry_max_delay_seconds": 0.2}


@pytest.fixture(scope="module", params=["sentinel", "cluster"])
def topology(request: pytest.FixtureRequest) -> Iterator[Topology]:
    made: Topology
    made = (
        SentinelServers(programs()[0]) if request.param == "sentinel" else ClusterServers(programs()[0], replicas=True)
    )
    try:
        yield made.start()
    finally:
        made.remove()


@pytest.fixture
def queue(topology: Topology) -> Iterator[RedisMessageQueue]:
    """A queue on servers without data, all of them up and in step."""
    restore(topology)
    made = RedisMessageQueue("orders", url=topology.url, enable_completed_queue=True, **RETRIES)
    yield made
    made.close()


def restore(topology: Topology) -> None:
    """After a crash: the old primary follows the new one, and all is empty."""
    for server in topology.servers:
        if not server.runs:
            server.start()
            with server.client() as client, topology.primary(KEY) as primary:
                client.replicaof("127.0.0.1", primary.get_connection_kwargs()["port"])
    for server in topology.servers:
        with server.client() as client:
            wait_until(partial(is_settled, client), "it is a primary, or in step with one")
            if client.role()[0] == b"master":
                client.flushall()


def is_settled(client: redis.Redis) -> bool:
    told = client.info("replication")
    return told["role"] == "master" or told["master_link_status"] == "up"


def crash(topology: Any) -> None:
    """Kill the primary when its replica has everything, and return when that has become the primary."""
    with topology.primary(KEY) as client:
        client.set("{orders}", "the last write")  # beside the queue, in its slot
        assert client.wait(1, 20_000) >= 1
    topology.crash(KEY)


def check(topology: Topology, queue: RedisMessageQueue, sink: Sink, truth: dict[str, int]) -> None:
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


def test_what_is_written_is_streamed_on_and_drained(
    spark: SparkSession, topology: Topology, queue: RedisMessageQueue, sink: Sink, tmp_path: Path
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


def test_a_drain_goes_on_when_the_primary_dies(
    spark: SparkSession, topology: Topology, queue: RedisMessageQueue, sink: Sink, tmp_path: Path
) -> None:
    truth = publish(queue, 10 * CHUNK)
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(
            drain, spark, queue, sink.writer(holding(tmp_path)), partitions=2, batch_size=CHUNK, lease_seconds=600
        )
        wait_until(lambda: arrived(tmp_path, 2), "both partitions are at work", WORKER_SECONDS)
        crash(topology)
        (tmp_path / "go on").touch()
        summary = running.result(timeout=120)

    assert summary.acked == len(truth)
    check(topology, queue, sink, truth)


def test_a_stream_goes_on_when_the_primary_dies(
    spark: SparkSession, topology: Topology, queue: RedisMessageQueue, sink: Sink, tmp_path: Path
) -> None:
    truth = publish(queue, 3 * CHUNK)
    stream = Stream(spark, queue, sink, tmp_path)

    def before(number: int) -> None:
        if number == 1:
            crash(topology)

    assert stream.run(before=before) is None

    check(topology, queue, sink, truth)


POINTS = {
    "a task that publishes": ("direct", "publish"),
    "a task that stages": ("staged", "stage"),
    "the commit": ("staged", "publish"),
}


@pytest.mark.parametrize("point", POINTS)
def test_a_write_goes_on_when_the_primary_dies(
    spark: SparkSession, topology: Topology, queue: RedisMessageQueue, tmp_path: Path, point: str
) -> None:
    mode, script = POINTS[point]
    marker = tmp_path / "stands"

    def crash_in_the_middle() -> None:
        wait_until(marker.exists, "the writer is at work", WORKER_SECONDS)
        try:
            crash(topology)
        finally:
            (tmp_path / "go on").touch()

    with ThreadPoolExecutor(1) as pool:
        crashing = pool.submit(crash_in_the_middle)
        # In this thread: Spark finds a data source by the name only where its session is the thread's.
        write(spark, queue, faulty_source(Fault("after", script, 2, "stand", str(marker))), mode)
        crashing.result()

    assert sorted(message.json()["n"] for message in queue.peek(1000)) == list(range(6 * CHUNK))
    with topology.primary(KEY) as client:
        assert state.counters(client, queue.name)["published"] == 6 * CHUNK
        state.check(client)
