"""Dagster's run queue lets fewer runs start than a gate asks for."""

from __future__ import annotations

import pytest

from tests.dagster.live.conftest import GateOf
from tests.support import handlers

pytestmark = [pytest.mark.dagster, pytest.mark.slow, pytest.mark.full, pytest.mark.timeout(600)]


def test_a_run_that_waits_in_the_run_queue_keeps_the_gate_shut(gate_of: GateOf) -> None:
    gate = gate_of("limited")  # three runs in flight, of which the instance runs one
    gate.publish(10, holds=5)
    gate.open()
    gate.wait_until_held()
    gate.publish(10, start=10)
    gate.wait_for("STARTED", "QUEUED")

    gate.deployment.wait(
        lambda: "1 yet to claim" in (gate.ticks()[-1].skip_reason or ""), "a tick sees the run that waits"
    )
    assert gate.statuses() == ["STARTED", "QUEUED"]

    gate.let_go()
    first, second = gate.wait_for("SUCCESS", "SUCCESS")
    assert [gate.metadata(run)["sluicegate/acked"] for run in (first, second)] == [10, 10]
    assert handlers.numbers(gate.folder) == list(range(20))
    gate.check_settled(20)
