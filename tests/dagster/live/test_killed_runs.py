"""A run is killed in the middle of its drain, alone or with its host, and the next one finishes the work."""

from __future__ import annotations

import os
import signal
from collections import Counter

import psutil
import pytest

from tests.dagster.live.conftest import GateOf
from tests.dagster.live.gate import LiveGate
from tests.support import handlers
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.dagster, pytest.mark.slow, pytest.mark.full, pytest.mark.timeout(600)]


def start(gate: LiveGate) -> int:
    """Publish three batches and wait until a run holds in the second; returns its process."""
    gate.publish(30, holds=15)
    gate.open()
    process = gate.wait_until_held()
    assert gate.queue.stats().acked == 10
    return process


def check_second_batch_came_twice(gate: LiveGate) -> None:
    assert Counter(handlers.numbers(gate.folder)) == Counter([*range(30), *range(10, 20)])
    gate.check_settled(30)


def test_the_retry_of_a_run_whose_step_was_killed_takes_over_its_batch_at_once(gate_of: GateOf) -> None:
    gate = gate_of("retried")  # its leases outlive this test
    step = start(gate)

    os.kill(step, signal.SIGKILL)
    gate.let_go()

    killed, retry = gate.wait_for("FAILURE", "SUCCESS")
    assert retry.root_run_id == killed.run_id
    found = gate.metadata(retry)
    assert (found["sluicegate/acked"], found["sluicegate/acked_before"]) == (20, 10)
    check_second_batch_came_twice(gate)


def test_a_killed_run_fails_and_the_next_one_finishes_when_its_lease_has_expired(gate_of: GateOf) -> None:
    gate = gate_of("killed")
    worker = start(gate)

    os.kill(worker, signal.SIGKILL)
    gate.let_go()

    killed, second = gate.wait_for("FAILURE", "SUCCESS")
    assert second.root_run_id is None
    assert killed.tags["dagster/run_key"] != second.tags["dagster/run_key"]
    check_second_batch_came_twice(gate)


@pytest.mark.parametrize(("name", "status"), [("stale", "STARTED"), ("monitored", "FAILURE")])
def test_a_gate_opens_again_after_a_host_that_died_with_its_run(gate_of: GateOf, name: str, status: str) -> None:
    gate = gate_of(name)  # Dagster believes that the run continues, until it is old or its time is over
    worker = start(gate)

    gate.deployment.kill("gates", "daemon")
    wait_until(lambda: not psutil.pid_exists(worker), "the run has died with its host")
    gate.let_go()
    gate.deployment.start("gates", "daemon")

    died, second = gate.wait_for(status, "SUCCESS")
    assert second.root_run_id is None
    assert died.tags["dagster/run_key"] != second.tags["dagster/run_key"]
    check_second_batch_came_twice(gate)
