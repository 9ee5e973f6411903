"""The recipes of examples/spark for drains: crashed between write and ack, run again, held against their sinks."""

from __future__ import annotations

import functools
import sqlite3
from collections import Counter
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow.parquet as pq
import pytest
import redis

from sluicegate import RedisMessageQueue
from tests.conformance import state
from tests.spark.recipes import crash_after_writing, order, recipe

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]
COUNT = 2500  # three leases


def in_files(folder: Path) -> Counter[str]:
    """How often each message is in the Parquet files of a folder."""
    return Counter(name for file in folder.glob("[!.]*.parquet") for name in pq.read_table(file)["id"].to_pylist())


def in_database(file: Path) -> Counter[str]:
    """How often each message is in the table of orders."""
    with closing(sqlite3.connect(file)) as connection:
        return Counter(name for (name,) in connection.execute("SELECT message_id FROM orders"))


DRAINS = pytest.mark.parametrize(
    ("name", "look"), [("parquet_by_lease", in_files), ("upsert_by_id", in_database)], ids=["parquet", "upsert"]
)


def check_done(queue: RedisMessageQueue, client: redis.Redis) -> None:
    depth = queue.depth()
    assert (depth.ready, depth.in_flight, depth.leases, depth.dead) == (0, 0, 0, 0)
    assert state.counters(client, queue.name)["acked"] == COUNT


@DRAINS
def test_a_worker_killed_between_write_and_ack_leaves_no_duplicate(
    name: str,
    look: Callable[[Path], Counter[str]],
    spark: SparkSession,
    queue: RedisMessageQueue,
    client: redis.Redis,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ids = queue.publish_many(map(order, range(COUNT))).ids
    module, armed, sink = recipe(name), tmp_path / "armed", tmp_path / "sink"
    crash_after_writing(monkeypatch, module, armed)

    summary = module.main(spark, queue, "nightly", sink)

    assert not armed.exists()
    assert (summary.acked, sum(part.taken_over for part in summary.partitions)) == (COUNT, 1)
    assert look(sink) == Counter(ids)
    check_done(queue, client)


@DRAINS
def test_a_job_that_crashed_for_good_is_run_again_and_leaves_no_duplicate(
    name: str,
    look: Callable[[Path], Counter[str]],
    spark: SparkSession,
    queue: RedisMessageQueue,
    client: redis.Redis,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ids = queue.publish_many(map(order, range(COUNT))).ids
    module, armed, sink = recipe(name), tmp_path / "armed", tmp_path / "sink"
    crash_after_writing(monkeypatch, module, armed, again=True)
    with pytest.raises(Exception, match="Python worker exited unexpectedly"):
        module.main(spark, queue, "nightly", sink)
    written = look(sink)
    assert set(written.values()) == {1}
    assert "acked" not in state.counters(client, queue.name)

    armed.unlink()
    summary = module.main(spark, queue, "nightly", sink)

    assert summary.acked == COUNT
    assert look(sink) == Counter(ids)
    check_done(queue, client)


def test_what_a_lost_lease_had_written_is_in_two_files_with_one_id(
    spark: SparkSession,
    queue: RedisMessageQueue,
    client: redis.Redis,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ids = queue.publish_many(map(order, range(COUNT))).ids
    module, armed, sink = recipe("parquet_by_lease"), tmp_path / "armed", tmp_path / "sink"
    # One task: of two, the job's failure would leave the other writing for a moment.
    monkeypatch.setattr(module, "drain", functools.partial(module.drain, partitions=1))
    crash_after_writing(monkeypatch, module, armed, again=True)
    with pytest.raises(Exception, match="Python worker exited unexpectedly"):
        module.main(spark, queue, "monday", sink)
    written = in_files(sink)
    assert written == Counter(ids[:1000])
    state.expire(client, queue.name)

    armed.unlink()
    module.main(spark, queue, "tuesday", sink)

    assert in_files(sink) == Counter(ids) + written
    check_done(queue, client)
