"""A streaming query whose processes end at every point, whose checkpoint is damaged, or that is started twice."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import redis

from sluicegate import RedisMessageQueue
from tests.spark.faults.points import Fault
from tests.spark.faults.sinks import Sink, check_acked_once, check_nothing_lost, publish
from tests.spark.faults.streaming import QUERY_SECONDS, Stream, newest_commit, remove_commit
from tests.support.axes import quick
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]  # the first test starts the session

BATCH = 20


class BrokenSinkError(Exception):
    """The driver fails."""


@pytest.fixture
def stream(spark: SparkSession, queue: RedisMessageQueue, sink: Sink, tmp_path: Path) -> Stream:
    return Stream(spark, queue, sink, tmp_path)


def fail_in(*numbers: int) -> object:
    def check(number: int) -> None:
        if number in numbers:
            raise BrokenSinkError(f"in batch {number}")

    return check


@pytest.mark.full  # the query that dies between sink and commit stands for it in the quick lane
@pytest.mark.parametrize(("when", "action"), [("before", "raise"), ("after", "kill")])
def test_a_worker_that_ends_while_it_reads_is_replaced_and_reads_the_same(
    stream: Stream, queue: RedisMessageQueue, client: redis.Redis, sink: Sink, tmp_path: Path, when: str, action: str
) -> None:
    truth = publish(queue, 3 * BATCH)
    marker = tmp_path / "happened"

    assert stream.run(fault=Fault(when, "manifest", 1, action, str(marker))) is None

    assert marker.exists()
    check_nothing_lost(sink, truth)
    check_acked_once(queue, client, truth)
    assert sink.duplicates() == {}


PLANNER = {
    "after the first claim": ("after", "claim", 1),
    "after a claim": ("after", "claim", 2),
    "before an ack": ("before", "settle", 1),
    "after an ack": ("after", "settle", 1),
}


@pytest.mark.full  # the query that dies between sink and commit stands for it in the quick lane
@pytest.mark.parametrize("point", quick(PLANNER, "after an ack"))
def test_a_planning_process_that_is_killed_at_any_point_repeats_no_batch_that_was_committed(
    stream: Stream, queue: RedisMessageQueue, client: redis.Redis, sink: Sink, tmp_path: Path, point: str
) -> None:
    truth = publish(queue, 3 * BATCH)
    marker = tmp_path / "happened"
    when, script, number = PLANNER[point]

    assert stream.run(fault=Fault(when, script, number, "kill", str(marker))) is not None
    assert marker.exists()
    assert stream.run() is None

    check_nothing_lost(sink, truth)
    check_acked_once(queue, client, truth)
    assert sink.duplicates() == {}


@pytest.mark.full
def test_a_batch_that_reached_the_sink_and_not_the_commit_log_is_replayed_with_the_same_messages(
    stream: Stream, queue: RedisMessageQueue, client: redis.Redis, sink: Sink
) -> None:
    truth = publish(queue, 4 * BATCH)

    failed = stream.run(after=fail_in(1))
    assert "in batch 1" in str(failed)
    assert stream.run() is None

    check_nothing_lost(sink, truth)
    check_acked_once(queue, client, truth)
    first, second = stream.batches[1]
    assert first == second
    assert sorted(sink.duplicates().elements()) == first, "the batch that was not committed, and nothing else"


@pytest.mark.full
def test_a_commit_that_was_lost_replays_its_batch_and_no_other(
    stream: Stream, queue: RedisMessageQueue, client: redis.Redis, sink: Sink, tmp_path: Path
) -> None:
    """The file of a commit goes with the machine that wrote it, before its batch was acked."""
    truth = publish(queue, 4 * BATCH)
    assert stream.run(fault=Fault("before", "settle", 2, "kill", str(tmp_path / "happened"))) is not None
    last = newest_commit(stream.checkpoint)
    remove_commit(stream.checkpoint, last)

    assert stream.run() is None

    check_nothing_lost(sink, truth)
    check_acked_once(queue, client, truth)
    first, second = stream.batches[last]
    assert first == second
    assert sorted(sink.duplicates().elements()) == first


@pytest.mark.full
def test_a_commit_that_is_deleted_after_its_batch_was_acked_is_told_and_costs_nothing(
    stream: Stream, queue: RedisMessageQueue, client: redis.Redis, sink: Sink
) -> None:
    truth = publish(queue, 2 * BATCH)
    assert stream.run() is None
    check_acked_once(queue, client, truth)
    remove_commit(stream.checkpoint, newest_commit(stream.checkpoint))
    more = publish(queue, BATCH, first=len(truth))

    assert "failOnDataLoss" in str(stream.run()), "what was acked cannot be read again"
    assert stream.run(failOnDataLoss="false") is None

    check_nothing_lost(sink, truth | more)
    check_acked_once(queue, client, truth | more)
    assert sink.duplicates() == {}


@pytest.mark.full
def test_a_deleted_checkpoint_repeats_what_was_not_acked_and_loses_nothing(
    stream: Stream, queue: RedisMessageQueue, client: redis.Redis, sink: Sink
) -> None:
    truth = publish(queue, 4 * BATCH)
    assert stream.run(after=fail_in(2)) is not None
    unacked = stream.batches[2][0]
    shutil.rmtree(stream.checkpoint)

    assert stream.run() is None

    check_nothing_lost(sink, truth)
    check_acked_once(queue, client, truth)
    assert sorted(sink.duplicates().elements()) == unacked


@pytest.mark.full
def test_of_two_queries_with_one_consumer_the_older_one_ends_and_nothing_is_lost(
    stream: Stream, queue: RedisMessageQueue, client: redis.Redis, sink: Sink, tmp_path: Path
) -> None:
    truth = publish(queue, 2 * BATCH)
    older = stream.start(once=False)
    try:
        wait_until(lambda: len(sink.rows()) == len(truth), "the older query works", QUERY_SECONDS)
        truth |= publish(queue, 2 * BATCH, first=len(truth))
        newer = stream.start(once=False, checkpoint=tmp_path / "another")
        try:
            wait_until(lambda: not older.isActive, "the older query ends", QUERY_SECONDS)
            truth |= publish(queue, 2 * BATCH, first=len(truth))
            wait_until(lambda: set(truth) <= set(dict(sink.rows())), "the newer one goes on", QUERY_SECONDS)
            wait_until(lambda: queue.depth().in_flight == 0, "it acks what it did", QUERY_SECONDS)
            assert newer.isActive
        finally:
            newer.stop()
    finally:
        older.stop()

    assert "another streaming query was started with consumer 'etl'" in str(older.exception())
    check_nothing_lost(sink, truth)
    check_acked_once(queue, client, truth)
    assert all(count == 1 for count in sink.duplicates().values()), "at most what the older one had in hand"
