"""Looking on changes nothing and sees everything."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from example_dags.demo.data import KEY
from example_dags.demo.paths import QUEUE, Paths
from example_dags.demo.watch import Watcher, read_lease_file
from sluicegate import RedisMessageQueue
from tests.demo.helpers import some_rows, typed, write_lease


@pytest.fixture
def queue(paths: Paths) -> Iterator[RedisMessageQueue]:
    queue = RedisMessageQueue(QUEUE, url=paths.url, get_deduplication_key=KEY)
    yield queue
    queue.close()


@pytest.fixture
def watcher(paths: Paths) -> Iterator[Watcher]:
    watcher = Watcher(paths, interval_seconds=0.01)
    yield watcher
    watcher.stop()


def test_a_sample_holds_what_the_queue_holds(queue: RedisMessageQueue, watcher: Watcher) -> None:
    flights = [typed(row) for row in some_rows(10)]
    queue.publish_many(flights)
    queue.publish_many(flights[:3])
    queue.claim(limit=4).ack()
    held = queue.claim(limit=2, lease_id="mine")
    queue.claim(limit=2, lease_id="mine", take_over_after_seconds=0)

    sample = watcher.run_once()

    assert (sample.published, sample.refused, sample.claimed, sample.acked) == (10, 3, 6, 4)
    assert (sample.ready, sample.in_flight, sample.leases, sample.taken_over) == (4, 2, 1, 1)
    assert len(held) == 2
    assert watcher.run_once().claimed == 6


def test_files_are_seen_once_written_and_again_when_overwritten(paths: Paths, watcher: Watcher) -> None:
    rows = some_rows(9)
    write_lease(paths.flights, rows[:4], partition=1, name="first", lease_id="run/1/0", pid=77)
    write_lease(paths.flights, rows[4:9], partition=2, name="second")
    for name in (".third.parquet", ".fourth.parquet.99"):
        (paths.flights / "partition=2" / name).write_bytes(b"half a file")

    watcher.run_once()

    assert watcher.drained() == {1: 4, 2: 5}
    first = watcher.files[paths.flights / "partition=1" / "first.parquet"]
    assert (first.partition, first.rows, first.lease_id, first.pid, first.deliveries) == (1, 4, "run/1/0", 77, 1)
    assert first.started <= first.finished
    os.utime(first.path, (first.started - 0.004, first.started - 0.004))
    assert read_lease_file(first.path).finished == first.started

    write_lease(paths.flights, rows[:4], partition=1, name="first", lease_id="run/1/0", pid=88)
    watcher.run_once()

    assert watcher.drained() == {1: 4, 2: 5}
    assert watcher.files[first.path].pid == 88


def test_the_last_sample_is_taken_when_it_stops(queue: RedisMessageQueue, watcher: Watcher) -> None:
    watcher.start()
    queue.publish(typed(some_rows(1)[0]))
    watcher.stop()

    assert watcher.samples[0].published == 0
    assert watcher.samples[-1].published == 1
    assert watcher.totals["published"] == 1
    assert watcher.failure is None


def test_a_watcher_that_cannot_look_says_why(paths: Paths, watcher: Watcher) -> None:
    watcher.start()
    (paths.flights / "partition=0").mkdir(parents=True)
    (paths.flights / "partition=0" / "torn.parquet").write_bytes(b"not parquet")
    watcher.stop()

    assert watcher.failure is not None
    assert "arquet" in str(watcher.failure)
