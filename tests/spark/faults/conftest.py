"""A queue that remembers every ack, and a sink that forgives nothing."""

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
    """One for each test: what a test was cruel to may still be at work when the next one begins."""
    running = RedisServer(PROGRAMS[0]).start()
    yield running
    running.remove()


@pytest.fixture
def queue(server: RedisServer, make_queue: MakeQueue) -> RedisMessageQueue:
    """A queue that can travel to executors, with a record per ack."""
    return make_queue(url=server.url, enable_completed_queue=True)


@pytest.fixture
def sink(tmp_path: Path) -> Sink:
    """Where handlers, wherever they run, add what they were given."""
    folder = tmp_path / "sink"
    folder.mkdir()
    return Sink(folder)
