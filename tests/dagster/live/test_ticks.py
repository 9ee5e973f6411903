"""What happens to a tick changes nothing in Redis: a preview, a timeout, a reload of the code in its middle."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.dagster.live.conftest import GateOf
from tests.dagster.live.deployment import LiveDagster
from tests.dagster.live.gate import LiveGate
from tests.dagster.live.settings import TICK_SECONDS
from tests.support import handlers

pytestmark = [pytest.mark.dagster, pytest.mark.slow, pytest.mark.full, pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def deployment() -> Iterator[LiveDagster]:
    """Yield a deployment of its own, because its code server loads its code again."""
    running = LiveDagster({"gates": "gates.py"}, reloadable=True)
    try:
        running.start()
        yield running
    finally:
        running.remove()


def stored(gate: LiveGate) -> dict[bytes, bytes]:
    """Return every value that Redis holds."""
    with gate.deployment.redis.client() as client:
        return {key: client.dump(key) for key in client.scan_iter()}


def check_drained_once(gate: LiveGate, run_key: str) -> None:
    (run,) = gate.wait_for("SUCCESS")
    assert run.tags["dagster/run_key"] == run_key
    assert handlers.numbers(gate.folder) == list(range(10))
    gate.check_settled(10)


def test_a_preview_changes_nothing_and_starts_nothing(gate_of: GateOf) -> None:
    gate = gate_of("previewed")
    gate.publish(10)
    before = stored(gate)

    command = ["sensor", "preview", "-w", gate.deployment.workspace, "-l", "gates", "previewed_gate"]
    shown = gate.deployment.run(*command)

    assert "run requests for 1 run" in shown
    assert stored(gate) == before
    assert gate.runs() == []


def test_a_tick_that_takes_too_long_changes_nothing_and_the_next_one_asks_for_the_run(gate_of: GateOf) -> None:
    gate = gate_of("slow_tick")
    gate.publish(10)
    before = stored(gate)
    gate.open()
    gate.hold_ticks()

    gate.deployment.wait(lambda: any(tick.error for tick in gate.ticks()), "a tick fails", 60 + TICK_SECONDS)
    assert f"longer than {TICK_SECONDS} seconds" in gate.ticks()[0].error.to_string()
    assert stored(gate) == before
    assert gate.runs() == []

    gate.release_ticks()
    check_drained_once(gate, "slow_tick:0:0")


def test_code_that_is_loaded_again_during_a_tick_costs_no_message_and_no_run(gate_of: GateOf) -> None:
    gate = gate_of("reloaded")
    gate.publish(10)
    before = stored(gate)
    gate.hold_ticks()
    gate.open()
    gate.wait_for_held_tick()

    gate.deployment.reload("gates")
    assert stored(gate) == before

    gate.release_ticks()
    check_drained_once(gate, "reloaded:0:0")
