"""Tests run on each way of reaching Redis in turn."""

from __future__ import annotations

import shutil
from collections.abc import Iterator

import pytest
import redis

from sluicegate.core.keys import QueueKeys
from tests.support import not_run, state
from tests.support.flavours import Loop
from tests.support.topologies import Topology
from tests.topologies import ways
from tests.topologies.ways import QueueMaker, Way

# openssl makes the certificates. Without it, `ways.missing` lists TLS as not run.
collect_ignore = [] if shutil.which("openssl") else ["test_certificates.py"]


@pytest.fixture(scope="session")
def topology(request: pytest.FixtureRequest) -> Iterator[Topology]:
    kind, program = request.param
    with kind(program) as running:
        yield running


@pytest.fixture
def way(request: pytest.FixtureRequest) -> Way:
    way: Way = request.param
    return way


@pytest.fixture
def make(way: Way, topology: Topology, loop: Loop) -> Iterator[QueueMaker]:
    """Yield a function that makes queues on empty servers; the teardown checks the invariants of every queue."""
    topology.empty()
    maker = QueueMaker(way, topology, loop)
    try:
        yield maker
    finally:
        maker.close()
    for client in topology.inspectors():
        with client:
            state.check(client)


@pytest.fixture
def inside(topology: Topology, make: QueueMaker) -> Iterator[redis.Redis]:
    """Yield a client of the server that has the queue `orders`; it may do everything."""
    with topology.primary(QueueKeys("orders").pending) as client:
        yield client


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Parametrize ways and topologies together, so that each topology is started once."""
    if "way" not in metafunc.fixturenames:
        return
    pairs = [((way.topology, way.program), way) for way in ways.ways()]
    metafunc.parametrize(("topology", "way"), pairs, ids=[str(way) for _, way in pairs], indirect=True, scope="session")


def pytest_collection_finish(session: pytest.Session) -> None:
    for what in ways.missing():
        not_run.note(what)
