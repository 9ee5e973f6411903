"""The daemon is killed again and again while messages come."""

from __future__ import annotations

import random
import time

import pytest

from tests.dagster.live.conftest import GateOf
from tests.support import handlers
from tests.support.settings import THOROUGH
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.dagster, pytest.mark.slow, pytest.mark.full, pytest.mark.timeout(900)]

ROUNDS = 6 * (1 + THOROUGH)
MOST_SECONDS = 20.0  # after its start, a daemon ticks every five seconds
EACH = 10


def test_a_daemon_killed_at_any_moment_loses_no_message_and_asks_for_no_run_twice(gate_of: GateOf) -> None:
    gate = gate_of("steady")
    gate.open()
    randomly = random.Random(THOROUGH)
    for number in range(ROUNDS):
        gate.publish(EACH, number * EACH)
        killed_at = time.monotonic() + randomly.uniform(0, MOST_SECONDS)
        wait_until(lambda at=killed_at: time.monotonic() > at, "the daemon is killed")
        gate.deployment.kill("daemon")
        gate.deployment.start("daemon")

    count = ROUNDS * EACH
    gate.deployment.wait(lambda: gate.queue.stats().acked == count, "everything is drained", 300)
    gate.deployment.wait(lambda: all(run.is_finished for run in gate.runs()), "every run has ended")
    assert handlers.numbers(gate.folder) == list(range(count))
    gate.check_settled(count)
    keys = [run.tags["dagster/run_key"] for run in gate.runs()]
    assert len(set(keys)) == len(keys) <= ROUNDS
    assert set(gate.statuses()) == {"SUCCESS"}
