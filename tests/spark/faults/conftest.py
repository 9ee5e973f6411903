"""A queue that remembers every ack, and a sink that forgives nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

from sluicegate import RedisMessageQueue
from tests.conformance.servers import RedisServer
from tests.conftest import MakeQueue
from tests.spark.faults.sinks import Sink


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
