"""The tests of this room share one deployment of Dagster. When one fails, it shows what the components wrote."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.dagster.live import browser
from tests.dagster.live.deployment import LiveDagster
from tests.dagster.live.gate import LiveGate
from tests.support import not_run

GateOf = Callable[..., LiveGate]
# Without a browser, a run that would need it lists it as not run.
collect_ignore = [] if browser.program() else ["test_browser.py"]


def pytest_collection_finish(session: pytest.Session) -> None:
    if collect_ignore and any(Path(__file__).parent in item.path.parents for item in session.items):
        not_run.note(browser.MISSING)


@pytest.fixture(scope="session")
def deployment() -> Iterator[LiveDagster]:
    """Yield the running deployment of all tests with one code location."""
    running = LiveDagster({"gates": "gates.py"})
    try:
        running.start()
        yield running
    finally:
        running.remove()


@pytest.fixture
def gate_of(deployment: LiveDagster, tmp_path: Path) -> Iterator[GateOf]:
    """Yield a function that returns the gate of a queue; the teardown switches it off."""
    with ExitStack() as stack:

        def gate_of(name: str, location: str = "gates") -> LiveGate:
            folder = tmp_path / location / name
            folder.mkdir(parents=True)
            gate = LiveGate(deployment, name, folder, location)
            stack.callback(gate.close)
            return gate

        yield gate_of


@pytest.fixture(scope="session")
def drained(deployment: LiveDagster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveGate]:
    """Yield a gate that is switched on, after it has opened for a backlog of 25 messages and they were drained."""
    gate = LiveGate(deployment, "orders", tmp_path_factory.mktemp("orders"))
    try:
        gate.publish(25)
        gate.open()
        gate.wait_for("SUCCESS")
        yield gate
    finally:
        gate.close()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: Any) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Show the ends of the logs beside a failure."""
    report = yield
    deployment = getattr(item, "funcargs", {}).get("deployment")
    if report.failed and isinstance(deployment, LiveDagster):
        report.sections += [(f"{name} (end of its log)", tail) for name, tail in deployment.tails().items()]
    return report
