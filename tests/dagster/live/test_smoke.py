"""The path that every user takes, on a real deployment."""

from __future__ import annotations

import pytest

from tests.dagster.live.conftest import GateOf
from tests.dagster.live.gate import LiveGate
from tests.support import handlers

pytestmark = [pytest.mark.dagster, pytest.mark.slow]


def test_the_daemon_starts_one_run_for_a_backlog_and_shows_an_outage(drained: LiveGate, gate_of: GateOf) -> None:
    unreachable = gate_of("unreachable")
    unreachable.open()

    (run,) = drained.runs()
    assert run.tags["dagster/run_key"] == "orders:0:0"
    assert drained.metadata(run)["dagster/row_count"] == 25
    assert handlers.numbers(drained.folder) == list(range(25))
    drained.check_settled(25)

    drained.deployment.wait(
        lambda: "0 messages ready in 'orders'" in (drained.ticks()[-1].skip_reason or ""),
        "a later tick finds the queue empty",
    )
    assert [tick.run_keys for tick in drained.ticks() if tick.run_ids] == [["orders:0:0"]]
    assert len(drained.runs()) == 1

    unreachable.deployment.wait(lambda: any(tick.error for tick in unreachable.ticks()), "a tick fails")
    (failed, *_) = unreachable.ticks()
    assert failed.status.value == "FAILURE"
    assert "127.0.0.1:1" in failed.error.to_string()
    assert failed.run_ids == []
