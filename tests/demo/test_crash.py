"""The kill of a worker at the worst moment, on real processes and a real server."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

import pytest

from example_dags.demo.crash import Crasher, ancestors
from example_dags.demo.paths import PROJECT, QUEUE, Paths
from sluicegate import LeaseState, RedisMessageQueue

MESSAGES, BATCH = 1000, 10
Found = TypeVar("Found")
# What a Spark worker does with a partition: claim, write a file named by the lease, ack; chunk after chunk.
WORKER = """
import os, sys
from pathlib import Path
from typing import TypeVar
from sluicegate import RedisMessageQueue
from tests.demo.helpers import some_rows, write_lease
url, folder, batch = sys.argv[1], Path(sys.argv[2]), int(sys.argv[3])
queue, rows = RedisMessageQueue("flights", url=url), some_rows(batch)
for chunk in range(10**6):
    lease = queue.claim(limit=batch, lease_id=f"run/0/{chunk}", heartbeat=False)
    if not lease:
        break
    write_lease(folder, rows, name=lease.key, lease_id=lease.id)
    lease.ack()
"""


@pytest.fixture
def queue(paths: Paths) -> Iterator[RedisMessageQueue]:
    queue = RedisMessageQueue(QUEUE, url=paths.url)
    queue.publish_many({"number": number} for number in range(MESSAGES))
    yield queue
    queue.close()


@pytest.fixture
def worker(paths: Paths, queue: RedisMessageQueue) -> Iterator[subprocess.Popen[bytes]]:
    command = [sys.executable, "-c", WORKER, paths.url, str(paths.flights), str(BATCH)]
    process = subprocess.Popen(command, cwd=PROJECT, env=os.environ | {"PYTHONPATH": str(PROJECT)})
    yield process
    process.kill()
    process.wait()


def until(what: Callable[[], Found | None], seconds: float = 60) -> Found | None:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if (found := what()) is not None:
            return found
    return None


def test_a_worker_dies_between_its_file_and_its_ack(
    paths: Paths, queue: RedisMessageQueue, worker: subprocess.Popen[bytes]
) -> None:
    crasher = Crasher(paths, after=5 * BATCH, root_pid=os.getpid())
    crash = until(crasher.run_once)

    assert crash is not None
    assert worker.wait(10) == -signal.SIGKILL
    assert crash.pid == worker.pid
    assert crash.lease.rows == BATCH
    files = len(list(paths.flights.glob("partition=0/[!.]*.parquet")))
    acked = queue.depth().published_total - queue.depth().ready - BATCH
    assert acked >= 5 * BATCH
    assert files * BATCH == acked + BATCH, "the file of the lease in hand is there, and nothing else is unacked"

    heir = queue.claim(limit=BATCH, lease_id=crash.lease.lease_id, take_over_after_seconds=0)
    assert heir.state is LeaseState.OPEN
    assert (heir.takeovers, len(heir)) == (1, BATCH)
    assert heir.key == crash.lease.path.stem, "who takes over overwrites that file"
    heir.ack()
    assert queue.publish({"number": MESSAGES}), "writes are no longer held back"
    crasher.stop()


def test_nothing_is_killed_before_its_time(
    paths: Paths, queue: RedisMessageQueue, worker: subprocess.Popen[bytes]
) -> None:
    crasher = Crasher(paths, after=MESSAGES + 1, root_pid=os.getpid())
    while worker.poll() is None:
        assert crasher.run_once() is None

    assert worker.returncode == 0
    assert queue.depth().ready == 0
    crasher.stop()


def test_a_process_of_somebody_else_is_left_alone(
    paths: Paths, queue: RedisMessageQueue, worker: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("example_dags.demo.crash._PAUSE_MS", 400)
    stranger = subprocess.Popen([sys.executable, "-c", "import sys; sys.stdin.read()"], stdin=subprocess.PIPE)
    crasher = Crasher(paths, after=BATCH, root_pid=stranger.pid)
    assert until(lambda: crasher.is_time() or None) is True
    for _ in range(3):
        assert crasher.run_once() is None
    crasher.stop()
    stranger.communicate()

    assert worker.wait(60) == 0


def test_ancestors_lead_from_a_child_to_its_parents(tmp_path: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", "import sys; sys.stdin.read()"], stdin=subprocess.PIPE) as child:
        assert ancestors(child.pid)[:2] == [os.getpid(), os.getppid()]
        child.communicate()
    assert ancestors(child.pid) == []
