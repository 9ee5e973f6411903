"""Two code locations of one instance have the same sensor, asset and queue names, as staging and production do."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.dagster.live.conftest import GateOf
from tests.dagster.live.deployment import LiveDagster
from tests.support import handlers

pytestmark = [pytest.mark.dagster, pytest.mark.slow, pytest.mark.full, pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def deployment() -> Iterator[LiveDagster]:
    """Yield a deployment with the same code in two locations, each with a database of its own."""
    running = LiveDagster({"staging": "gates.py", "production": "gates.py"})
    try:
        running.start()
        yield running
    finally:
        running.remove()


def test_a_run_of_one_location_does_not_shut_the_gate_of_the_other(gate_of: GateOf) -> None:
    staging, production = gate_of("orders", "staging"), gate_of("orders", "production")
    staging.publish(10, holds=5)
    production.publish(20)
    staging.open()
    staging.wait_until_held()

    production.open()
    (run,) = production.wait_for("SUCCESS")
    assert production.metadata(run)["sluicegate/acked"] == 20
    assert staging.statuses() == ["STARTED"]

    staging.let_go()
    staging.wait_for("SUCCESS")
    for gate, count in ((staging, 10), (production, 20)):
        assert handlers.numbers(gate.folder) == list(range(count))
        gate.check_settled(count)
