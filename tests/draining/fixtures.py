"""A server, a queue and handlers for everything that drains."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from sluicegate import RedisMessageQueue
from tests.draining.helpers import Numbers, Output
from tests.support.flavours import MakeQueue
from tests.support.servers import PROGRAMS, RedisServer

__all__ = ["numbers", "output", "queue", "server"]


@pytest.fixture(scope="module")
def server() -> Iterator[RedisServer]:
    """Yield a server of one program: the differences between programs are tested below the queue."""
    running = RedisServer(PROGRAMS[0]).start()
    yield running
    running.remove()


@pytest.fixture
def queue(server: RedisServer, make_queue: MakeQueue) -> RedisMessageQueue:
    """Return a queue that other processes can make from its spec."""
    return make_queue(url=server.url)


@pytest.fixture
def output(tmp_path: Path) -> Output:
    """Return a folder in which handlers, wherever they run, write what they were given."""
    folder = tmp_path / "output"
    folder.mkdir()
    return Output(folder)


@pytest.fixture
def numbers(queue: RedisMessageQueue) -> Numbers:
    """Publishes the numbers below a count, each as one message, and gives them."""

    def publish(count: int) -> list[int]:
        assert queue.publish_many({"n": n} for n in range(count)).accepted == count
        return list(range(count))

    return publish
