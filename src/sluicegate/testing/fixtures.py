"""These fixtures run one real server per session, and empty it for each test that uses it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import redis

from sluicegate.embedded import ensure_server, stop_server
from sluicegate.errors import EmbeddedServerError
from sluicegate.queue import RedisMessageQueue

if TYPE_CHECKING:
    from sluicegate.asyncio import queue as asyncio_queue

__all__ = ["TestServer", "make_async_queue", "make_queue", "queue", "redis_server", "redis_url"]


@dataclass(frozen=True, slots=True)
class TestServer:
    """This server belongs to one test session, and none of its data is kept."""

    __test__ = False

    socket: Path

    @property
    def url(self) -> str:
        """Return the server's URL, for sluicegate and redis-py alike."""
        return f"unix://{self.socket}"

    def client(self, **options: Any) -> redis.Redis:
        """Make a client of the server; `options` are those of `redis.Redis`."""
        return redis.Redis(unix_socket_path=str(self.socket), **options)

    def empty(self) -> None:
        """Delete everything on the server."""
        with self.client() as client:
            client.flushall()


@pytest.fixture(scope="session")
def redis_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestServer]:
    """Run a real Redis or Valkey server for the session, with the program of `sluicegate.embedded.find_server`."""
    folder = tmp_path_factory.mktemp("sluicegate-redis")
    try:
        running = ensure_server(folder)
    except EmbeddedServerError as error:
        pytest.fail(f"these tests need a Redis server: {error}", pytrace=False)
    server = TestServer(running.socket_path)
    try:
        with server.client() as client:
            client.ping()  # the server lives as long as this connection, so it also ends if the session is killed
            yield server
    finally:
        stop_server(folder)


@pytest.fixture
def redis_url(redis_server: TestServer) -> str:
    """Return the URL of an empty server, for code that makes its own queues."""
    redis_server.empty()
    return redis_server.url


@pytest.fixture
def make_queue(redis_url: str) -> Iterator[Callable[..., RedisMessageQueue]]:
    """Make empty queues, as in `make_queue("orders", max_delivery_count=3)`, and close them after the test."""
    made: list[RedisMessageQueue] = []

    def make(name: str = "queue", **options: Any) -> RedisMessageQueue:
        made.append(RedisMessageQueue(name, **_without_waiting(redis_url, options)))
        return made[-1]

    yield make
    for each in made:
        each.close()


@pytest.fixture
def queue(make_queue: Callable[..., RedisMessageQueue]) -> RedisMessageQueue:
    """Make an empty queue with the default options."""
    return make_queue()


@pytest.fixture
def make_async_queue(redis_url: str) -> Callable[..., asyncio_queue.RedisMessageQueue]:
    """Make asyncio queues, which the test closes in its own loop with `await queue.aclose()`."""
    from sluicegate.asyncio.queue import RedisMessageQueue as AsyncQueue

    def make(name: str = "queue", **options: Any) -> AsyncQueue:
        return AsyncQueue(name, **_without_waiting(redis_url, options))

    return make


def _without_waiting(url: str, options: dict[str, Any]) -> dict[str, Any]:
    """Set options so that a claim does not wait: a test's message is there already, or never comes."""
    place = {} if {"client", "gateway"} & options.keys() else {"url": url}
    return {**place, "message_wait_interval_seconds": 0, **options}
