"""The tests of this room share one deployment of Airflow. When one fails, it shows what the components wrote."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any

import pytest

from sluicegate import RedisMessageQueue
from tests.airflow.live.deployment import LiveDeployment
from tests.airflow.live.held import Held


@pytest.fixture(scope="session")
def deployment() -> Iterator[LiveDeployment]:
    """Yield a running deployment for all tests."""
    running = LiveDeployment()
    try:
        running.start()
        running.define_connection()
        yield running
    finally:
        running.remove()


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
