"""The recipes of examples/spark for drains: crashed between write and ack, run again, held against their sinks."""

from __future__ import annotations

import functools
import sqlite3
from collections import Counter
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

import pyarrow.parquet as pq
import pytest
import redis

from sluicegate import RedisMessageQueue
from sluicegate.spark import DrainSummary
from tests.spark.recipes import crash_after_writing, order, recipe
from tests.support import state

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]
COUNT = 2500  # three leases


def in_files(folder: Path) -> Counter[str]:
    """Return how often each message is in the Parquet files of a folder."""
    return Counter(name for file in folder.glob("[!.]*.parquet") for name in pq.read_table(file)["id"].to_pylist())


def in_database(file: Path) -> Counter[str]:
    """Return how often each message is in the table of orders."""
    with closing(sqlite3.connect(file)) as connection:
        return Counter(name for (name,) in connection.execute("SELECT message_id FROM orders"))


DRAINS = pytest.mark.parametrize(
    ("name", "look"), [("parquet_by_lease", in_files), ("upsert_by_id", in_database)], ids=["parquet", "upsert"]
)


def check_done(queue: RedisMessageQueue, client: redis.Redis) -> None:
    depth = queue.depth()
    assert (depth.ready, depth.in_flight, depth.leases, depth.dead) == (0, 0, 0, 0)
    assert state.counters(client, queue.name)["acked"] == COUNT


@dataclass(frozen=True)
class Crashing:
    """A recipe whose workers crash between their write and the ack, before a queue of orders."""

    ids: list[str]
    module: ModuleType
    armed: Path
    sink: Path

    def run(self, spark: SparkSession, queue: RedisMessageQueue, run_id: str = "nightly") -> DrainSummary:
        summary: DrainSummary = self.module.main(spark, queue, run_id, self.sink)
        return summary


@pytest.fixture
def crashing(
    queue: RedisMessageQueue, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[[str, bool], Crashing]:
    def make(name: str, again: bool) -> Crashing:
        ids = list(queue.publish_many(map(order, range(COUNT))).ids)
        made = Crashing(ids, recipe(name), tmp_path / "armed", tmp_path / "sink")
        crash_after_writing(monkeypatch, made.module, made.armed, again=again)
        return made

    return make


@DRAINS
def test_a_worker_killed_between_write_and_ack_leaves_no_duplicate(
    name: str,
    look: Callable[[Path], Counter[str]],
    spark: SparkSession,
    queue: RedisMessageQueue,
    client: redis.Redis,
    crashing: Callable[[str, bool], Crashing],
) -> None:
    job = crashing(name, False)

    summary = job.run(spark, queue)

    assert not job.armed.exists()
    assert (summary.acked, sum(part.taken_over for part in summary.partitions)) == (COUNT, 1)
    assert look(job.sink) == Counter(job.ids)
    check_done(queue, client)


@pytest.mark.full  # the worker that is killed between write and ack stands for it in the quick lane
@pytest.mark.parametrize(
    ("name", "look"),
    [
        pytest.param("parquet_by_lease", in_files, id="parquet"),
        pytest.param("upsert_by_id", in_database, id="upsert"),
    ],
)
def test_a_job_that_crashed_for_good_is_run_again_and_leaves_no_duplicate(
    name: str,
    look: Callable[[Path], Counter[str]],
    spark: SparkSession,
    queue: RedisMessageQueue,
    client: redis.Redis,
    crashing: Callable[[str, bool], Crashing],
) -> None:
    job = crashing(name, True)
    with pytest.raises(Exception, match="Python worker exited unexpectedly"):
        job.run(spark, queue)
    assert set(look(job.sink).values()) == {1}
    assert "acked" not in state.counters(client, queue.name)

    job.armed.unlink()
    summary = job.run(spark, queue)

    assert summary.acked == COUNT
    assert look(job.sink) == Counter(job.ids)
    check_done(queue, client)


@pytest.mark.full  # a job that crashed stands for it in the quick lane
def test_what_a_lost_lease_had_written_is_in_two_files_with_one_id(
    spark: SparkSession,
    queue: RedisMessageQueue,
    client: redis.Redis,
    monkeypatch: pytest.MonkeyPatch,
    crashing: Callable[[str, bool], Crashing],
) -> None:
    job = crashing("parquet_by_lease", True)
    # One task: of two, the job's failure would leave the other writing for a moment.
    monkeypatch.setattr(job.module, "drain", functools.partial(job.module.drain, partitions=1))
    with pytest.raises(Exception, match="Python worker exited unexpectedly"):
        job.run(spark, queue, "monday")
    written = in_files(job.sink)
    assert written == Counter(job.ids[:1000])
    state.expire(client, queue.name)

    job.armed.unlink()
    job.run(spark, queue, "tuesday")

    assert in_files(job.sink) == Counter(job.ids) + written
    check_done(queue, client)
