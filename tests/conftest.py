"""Every room's tests use these servers, clients and queues."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
import redis
from hypothesis import settings

from sluicegate import RedisMessageQueue
from tests.support import axes, state
from tests.support.flavours import Flavour, Loop, MakeGroup, MakeQueue, Maker, MakeStream
from tests.support.not_run import NotRun
from tests.support.room_report import RoomReport
from tests.support.servers import PROGRAMS, RedisServer, free_port
from tests.support.settings import COMPLETE, REPORT, THOROUGH

# The same examples in every run, so that a red test is red again. THOROUGH runs other examples, and more of them.
settings.register_profile("sluicegate", deadline=None, derandomize=THOROUGH == 0, print_blob=True)
settings.load_profile("sluicegate")

# `nohup make test &` ignores SIGINT, and every program that the tests start and interrupt would inherit that.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(NotRun(COMPLETE))
    if REPORT:
        config.pluginmanager.register(RoomReport(Path(REPORT)), RoomReport.__name__)


@pytest.hookimpl(tryfirst=True)  # before pytest selects by marker
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    axes.mark_full(items)


@pytest.fixture(scope="session", params=PROGRAMS, ids=lambda path: f"{path.parts[-3]}-{path.name}")
def server(request: pytest.FixtureRequest) -> Iterator[RedisServer]:
    """Each server program in turn; all tests share one process per program, which persists nothing."""
    running = RedisServer(request.param)
    try:
        yield running.start()
    finally:
        running.remove()


@pytest.fixture
def bare_client(server: RedisServer) -> Iterator[redis.Redis]:
    """Yield a client of an empty server that returns bytes; for tests that put invalid values at a queue's keys."""
    with server.client() as client:
        client.config_set("maxmemory", "0")
        client.flushall()
        client.config_resetstat()
        yield client


@pytest.fixture
def client(bare_client: redis.Redis) -> Iterator[redis.Redis]:
    """Yield a client of an empty server; the teardown checks the invariants of every queue."""
    yield bare_client
    state.check(bare_client)


@pytest.fixture(scope="session")
def loop() -> Iterator[Loop]:
    """Yield an event loop in a thread, for all asyncio queues."""
    running = Loop()
    yield running
    running.close()


@pytest.fixture
def flavour() -> Flavour:
    """Sync, with a client that returns bytes; the conformance suite overrides this with all four."""
    return Flavour()


@pytest.fixture
def make_queue(client: redis.Redis, flavour: Flavour, loop: Loop) -> Iterator[MakeQueue]:
    """Yield a function that makes queues on the test's server."""
    make = Maker(flavour, client, loop)
    yield make
    make.close()


@pytest.fixture
def make_stream(client: redis.Redis, flavour: Flavour, loop: Loop) -> Iterator[MakeStream]:
    """Yield a function that makes streams on the test's server."""
    make = Maker(flavour, client, loop)
    yield make.stream
    make.close()


@pytest.fixture
def make_group(client: redis.Redis, flavour: Flavour, loop: Loop) -> Iterator[MakeGroup]:
    """Yield a function that makes groups of streams on the test's server."""
    make = Maker(flavour, client, loop)
    yield make.group
    make.close()


@pytest.fixture
def queue(make_queue: MakeQueue) -> RedisMessageQueue:
    """Return a queue without deduplication."""
    return make_queue()


@pytest.fixture(params=PROGRAMS[:1], ids=lambda path: path.name)
def own_server(request: pytest.FixtureRequest) -> Iterator[RedisServer]:
    """Yield a server on a TCP port for one test, which may restart it: all confirmed writes are on disk."""
    program: Path = request.param
    running = RedisServer(program, "--appendonly", "yes", "--appendfsync", "always", port=free_port())
    try:
        yield running.start()
    finally:
        running.remove()
