"""Fault tests use a queue that records every ack, and a sink that keeps every write."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from sluicegate import RedisMessageQueue
from tests.spark.faults.sinks import Sink
from tests.support.flavours import MakeQueue
from tests.support.servers import PROGRAMS, RedisServer


@pytest.fixture
def server() -> Iterator[RedisServer]:
    """Yield one server per test, because what a test has disturbed may still be running when the next test begins."""
    running = RedisServer(PROGRAMS[0]).start()
    yield running
    running.remove()


@pytest.fixture
def queue(server: RedisServer, make_queue: MakeQueue) -> RedisMessageQueue:
    """Return a queue that can be sent to executors, with a record per ack."""
    return make_queue(url=server.url, enable_completed_queue=True)


@pytest.fixture
def sink(tmp_path: Path) -> Sink:
    """Return a folder in which handlers append what they were given, wherever they run."""
    folder = tmp_path / "sink"
    folder.mkdir()
    return Sink(folder)
