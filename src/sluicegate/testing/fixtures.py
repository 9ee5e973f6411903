"""The fixtures: one real server per session, emptied for each test that asks for it."""

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
    """A server of this test session; no other session uses it, and nothing on it is kept."""

    __test__ = False

    socket: Path

    @property
    def url(self) -> str:
        """Its URL, for sluicegate and redis-py alike."""
        return f"unix://{self.socket}"

    def client(self, **options: Any) -> redis.Redis:
        """A client of it; `options` are those of `redis.Redis`."""
        return redis.Redis(unix_socket_path=str(self.socket), **options)

    def empty(self) -> None:
        """Delete everything on it."""
        with self.client() as client:
            client.flushall()


@pytest.fixture(scope="session")
def redis_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestServer]:
    """A real Redis or Valkey server for the whole session: the program that `sluicegate.embedded.find_server` finds."""
    folder = tmp_path_factory.mktemp("sluicegate-redis")
    try:
        running = ensure_server(folder)
    except EmbeddedServerError as error:
        pytest.fail(f"these tests need a Redis server: {error}", pytrace=False)
    server = TestServer(running.socket_path)
    try:
        with server.client() as client:
            client.ping()  # the server lives as long as this connection: also after a session that was killed
            yield server
    finally:
        stop_server(folder)


@pytest.fixture
def redis_url(redis_server: TestServer) -> str:
    """The URL of a server that is empty when the test begins: for code that makes its own queues."""
    redis_server.empty()
    return redis_server.url


@pytest.fixture
def make_queue(redis_url: str) -> Iterator[Callable[..., RedisMessageQueue]]:
    """Makes queues, empty when the test begins: `make_queue("orders", max_delivery_count=3)`; closes them after it."""
    made: list[RedisMessageQueue] = []

    def make(name: str = "queue", **options: Any) -> RedisMessageQueue:
        made.append(RedisMessageQueue(name, **_on_the_spot(redis_url, options)))
        return made[-1]

    yield make
    for each in made:
        each.close()


@pytest.fixture
def queue(make_queue: Callable[..., RedisMessageQueue]) -> RedisMessageQueue:
    """A queue with the default options, empty when the test begins."""
    return make_queue()


@pytest.fixture
def make_async_queue(redis_url: str) -> Callable[..., asyncio_queue.RedisMessageQueue]:
    """As `make_queue`, for asyncio. A test closes what it makes, with `await queue.aclose()`, in its own loop."""
    from sluicegate.asyncio.queue import RedisMessageQueue as AsyncQueue

    def make(name: str = "queue", **options: Any) -> AsyncQueue:
        return AsyncQueue(name, **_on_the_spot(redis_url, options))

    return make


def _on_the_spot(url: str, options: dict[str, Any]) -> dict[str, Any]:
    """A test that waits for a message waits in vain: it is there, or never comes."""
    place = {} if {"client", "gateway"} & options.keys() else {"url": url}
    return {**place, "message_wait_interval_seconds": 0, **options}
