"""Python workers of a drain that end, or fail, at every point between two calls to Redis."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import redis

from sluicegate import RedisMessageQueue
from sluicegate.spark import drain
from tests.spark.faults.points import Fault, Faulty
from tests.spark.faults.sinks import Sink, check_acked_once, check_nothing_lost, publish
from tests.support import state
from tests.support.axes import quick

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]  # the first test starts the session

CHUNK = 20
# Where, and then what becomes of the current chunk: chunks in the sink twice, leases taken over.
POINTS = {
    "before the first claim": ("before", "claim", 1, 0, 0),
    "before a claim": ("before", "claim", 2, 0, 0),
    "after a claim": ("after", "claim", 2, 0, 1),
    "after process": ("before", "settle", 2, 1, 1),
    "after ack": ("after", "settle", 2, 0, 0),
}


@pytest.mark.parametrize(
    ("point", "action"),
    quick(
        [*((point, "kill") for point in POINTS), ("after a claim", "raise"), ("after process", "raise")],
        ("after a claim", "kill"),
        ("after process", "raise"),
    ),
)
def test_a_worker_that_ends_at_any_point_loses_nothing_and_acks_nothing_twice(
    spark: SparkSession,
    queue: RedisMessageQueue,
    client: redis.Redis,
    sink: Sink,
    tmp_path: Path,
    point: str,
    action: str,
) -> None:
    truth = publish(queue, 10 * CHUNK)
    when, script, number, twice, taken_over = POINTS[point]
    marker = tmp_path / "happened"
    handler = Faulty(sink.writer(), Fault(when, script, number, action, str(marker)))

    summary = drain(spark, queue, handler, partitions=2, batch_size=CHUNK, lease_seconds=600)

    assert marker.exists()
    check_nothing_lost(sink, truth)
    check_acked_once(queue, client, truth)
    assert sum(sink.duplicates().values()) == twice * CHUNK, "only what was handed over and not yet acked"
    assert state.counters(client, queue.name).get("taken_over", 0) == taken_over
    assert sum(part.taken_over for part in summary.partitions) == taken_over
    assert (summary.claimed, summary.acked, summary.returned) == (len(truth), len(truth), 0)
