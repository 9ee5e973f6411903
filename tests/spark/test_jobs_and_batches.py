"""Spark works on jobs and on batches of messages as any consumer does: an ack completes, a dead letter ends."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest
import redis

from sluicegate import Message, RedisMessageQueue
from sluicegate.errors import DrainFailedError
from sluicegate.jobs import JobKind, RedisJobQueue
from sluicegate.spark import DrainContext, drain, lease_batch, options
from sluicegate.spark.datasource import SluicegateDataSource
from tests.support.flavours import MakeQueue

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tests.support.servers import RedisServer

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]  # the first of them starts the session


@pytest.fixture
def jobs(server: RedisServer, client: redis.Redis) -> Iterator[RedisJobQueue]:
    """Yield a queue of jobs whose fragile ones have one attempt."""
    with RedisJobQueue("mails", url=server.url, kinds={"fragile": JobKind(max_attempts=1)}) as made:
        yield made


def test_a_drain_completes_the_jobs_and_the_one_that_fails_for_good_has_failed(
    spark: SparkSession, jobs: RedisJobQueue
) -> None:
    ids = jobs.enqueue_many({"n": n, "kind": "fragile" if n == 7 else "sturdy"} for n in range(40)).ids

    def process(batch: list[Message]) -> None:
        if any(message.json()["n"] == 7 for message in batch):
            raise ValueError("no such address")

    with pytest.raises(DrainFailedError) as caught:
        drain(spark, jobs, process, partitions=2, batch_size=15)

    assert (caught.value.summary.acked, caught.value.summary.buried) == (39, 1)
    found = jobs.get_many(ids)
    failed = found[ids[7]]
    assert [job.status for job in found.values()].count("completed") == 39
    assert (failed.status, failed.attempts) == ("failed", 1)
    assert "no such address" in str(failed.last_error)
    assert found[ids[0]].result() is None
    assert (jobs.stats().completed_jobs, jobs.stats().failed_jobs, jobs.depth().ready) == (39, 1, 0)


def test_a_leased_batch_and_a_read_of_jobs(spark: SparkSession, jobs: RedisJobQueue) -> None:
    spark.dataSource.register(SluicegateDataSource)
    ids = jobs.enqueue_many({"n": n} for n in range(20)).ids

    assert spark.read.format("sluicegate").options(**options(jobs)).load().count() == 20
    with lease_batch(spark, jobs, 15, schema="n int") as batch:
        assert sorted(row.n for row in batch.df.select("n").collect()) == list(range(15))
        assert jobs.get(ids[0]).status == "running"
        batch.ack()

    statuses = [job.status for job in jobs.get_many(ids).values()]
    assert (statuses.count("completed"), statuses.count("waiting")) == (15, 5)


def test_a_batch_is_complete_once_spark_has_acked_or_buried_everything(
    spark: SparkSession, server: RedisServer, make_queue: MakeQueue
) -> None:
    queue: RedisMessageQueue = make_queue(url=server.url, max_delivery_count=1)
    nightly = queue.batch([{"n": n} for n in range(60)], batch_id="nightly")
    queue.publish({"n": 0})  # of no batch

    def process(batch: list[Message], ctx: DrainContext) -> None:
        if any(message.json()["n"] == 7 for message in batch):
            raise ValueError("seven")

    assert (nightly.status().total, nightly.status().waiting, nightly.status().is_complete) == (60, 60, False)
    with pytest.raises(DrainFailedError) as caught:
        drain(spark, queue, process, partitions=2, batch_size=20)

    assert (caught.value.summary.acked, caught.value.summary.buried) == (60, 1)
    status = queue.get_batch("nightly").wait(0)
    assert (status.total, status.done, status.dead, status.waiting, status.in_flight) == (60, 59, 1, 0, 0)
    assert status.is_complete
    assert queue.redrive().redriven == 1
    assert not nightly.status().is_complete
    assert drain(spark, queue, lambda batch: None).acked == 1
    assert (nightly.status().done, nightly.status().is_complete) == (60, True)
