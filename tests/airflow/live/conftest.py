"""The tests of this room share one deployment of Airflow. When one fails, it shows what the components wrote."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from sluicegate import RedisMessageQueue
from tests.airflow.live import postgres
from tests.airflow.live.deployment import LiveDeployment
from tests.airflow.live.held import Held
from tests.support import browser, not_run

# Without PostgreSQL or a browser, a run that would need it lists it as not run.
_MISSING = {
    "test_postgresql.py": None if postgres.programs() else postgres.MISSING,
    "test_page.py": None if browser.program() else "the page of the queues in Airflow (apt-get install chromium)",
}
collect_ignore = [name for name, missing in _MISSING.items() if missing]


def pytest_collection_finish(session: pytest.Session) -> None:
    if any(item.get_closest_marker("full") for item in session.items):
        for missing in filter(None, _MISSING.values()):
            not_run.note(missing)


@pytest.fixture(scope="session", params=["sqlite"])
def deployment(request: pytest.FixtureRequest) -> Iterator[LiveDeployment]:
    """Yield a running deployment, one for all tests on SQLite and one for those that ask for PostgreSQL."""
    with ExitStack() as stack:
        options: dict[str, Any] = {}
        if request.param == "postgresql":
            database = postgres.PostgresServer()
            stack.callback(database.remove)
            database.start()
            options = {"database": database.url, "schedulers": 2}
        running = LiveDeployment(**options)
        stack.callback(running.remove)
        running.start()
        running.define_connection()
        yield running


@pytest.fixture
def queue(deployment: LiveDeployment, queue_name: str) -> Iterator[RedisMessageQueue]:
    """Yield a queue of this test on the deployment's Redis."""
    queue = RedisMessageQueue(queue_name, url=deployment.redis.url)
    yield queue
    queue.close()


@pytest.fixture
def held(deployment: LiveDeployment, queue: RedisMessageQueue, tmp_path: Path) -> Held:
    """Return the run of this test."""
    return Held(deployment, queue, tmp_path)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: Any) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Show the ends of the logs beside a failure."""
    report = yield
    deployment = getattr(item, "funcargs", {}).get("deployment")
    if report.failed and isinstance(deployment, LiveDeployment):
        report.sections += [(f"{name} (end of its log)", tail) for name, tail in deployment.tails().items()]
    return report
