from __future__ import annotations

import itertools
from collections.abc import Iterator

import dagster as dg
import pytest
import redis

from dagster_sluicegate import RedisQueueResource
from sluicegate import RedisMessageQueue
from sluicegate.embedded import EmbeddedServer, ensure_server, stop_server

_NUMBERS = itertools.count(1)


@pytest.fixture(autouse=True, scope="session")
def _no_telemetry() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DAGSTER_DISABLE_TELEMETRY", "yes")
        yield


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedServer]:
    folder = tmp_path_factory.mktemp("redis")
    yield ensure_server(folder)
    stop_server(folder)


@pytest.fixture(scope="session")
def url(server: EmbeddedServer) -> str:
    return f"embedded://{server.folder}"


@pytest.fixture(scope="session")
def client(server: EmbeddedServer) -> Iterator[redis.Redis]:
    with redis.Redis(unix_socket_path=str(server.socket_path)) as client:
        yield client


@pytest.fixture
def resource(url: str) -> RedisQueueResource:
    """Return a queue of its own for each test."""
    return RedisQueueResource(url=url, queue_name=f"orders {next(_NUMBERS)}")


@pytest.fixture
def queue(resource: RedisQueueResource) -> Iterator[RedisMessageQueue]:
    """Yield the producer's and observer's end of that queue."""
    with resource.get_queue() as queue:
        yield queue


@pytest.fixture
def instance() -> Iterator[dg.DagsterInstance]:
    with dg.DagsterInstance.ephemeral() as instance:
        yield instance
