"""Queues of jobs in both flavours, on one server program."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import redis

from tests.support.flavours import Loop
from tests.support.jobs import JobMaker, MakeJobs
from tests.support.servers import PROGRAMS


@pytest.fixture(params=["sync", "asyncio"])
def make_jobs(request: pytest.FixtureRequest, client: redis.Redis, loop: Loop) -> Iterator[MakeJobs]:
    """Yield what makes a queue of jobs; the queues end with the test."""
    maker = JobMaker(client, loop if request.param == "asyncio" else None)
    yield maker
    maker.close()


@pytest.fixture
def jobs(make_jobs: MakeJobs) -> object:
    """Return a queue of jobs with the defaults."""
    return make_jobs()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Flavours differ in Python only, so one server program is enough for them."""
    items[:] = [item for item in items if not _needless(item)]


def _needless(item: pytest.Item) -> bool:
    params = getattr(getattr(item, "callspec", None), "params", {})
    return "make_jobs" in params and params.get("server", PROGRAMS[0]) != PROGRAMS[0]
