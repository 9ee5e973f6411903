"""A sensor daemon's own iterations, with real runs: one run per backlog, visible failures, nothing left behind."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import dagster as dg
import pytest

from sluicegate import RedisMessageQueue
from sluicegate.embedded import ensure_server, stop_server
from tests.dagster.helpers import SensorDaemon, daemon
from tests.support.servers import free_port
from tests.support.waiting import wait_until

# An idle machine needs 16 s, of which most starts interpreters; a busy one needs several times that.
pytestmark = [pytest.mark.dagster, pytest.mark.slow, pytest.mark.full, pytest.mark.timeout(300)]


SENSORS = ("orders_gate", "gate_without_redis", "several_gates")


@pytest.fixture
def url(tmp_path: Path) -> Iterator[str]:
    """Yield a server of its own, because the code location fixes the names of its queues."""
    ensure_server(tmp_path / "redis")
    yield f"embedded://{tmp_path / 'redis'}"
    stop_server(tmp_path / "redis")


def iterate(gates: SensorDaemon) -> None:
    """Run an iteration in which every sensor is due."""
    before = {sensor: len(gates.ticks(sensor)) for sensor in SENSORS if gates.has_ticked}

    def ticked() -> bool:
        gates.iterate()
        return all(len(gates.ticks(sensor)) > count for sensor, count in before.items())

    wait_until(ticked, "every sensor ticks", seconds=60)


def test_the_daemon_starts_one_run_for_a_backlog_and_shows_an_outage(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    port = free_port()
    monkeypatch.setenv("GATES_REDIS_URL", url)
    monkeypatch.setenv("GATES_DEAD_URL", f"redis://127.0.0.1:{port}/0")
    queue = RedisMessageQueue("gates", url=url)
    queue.publish_many({"n": number} for number in range(5))
    with daemon(Path(__file__).with_name("gates.py")) as gates:
        iterate(gates)
        (run,) = gates.instance.get_runs()
        assert run.status is dg.DagsterRunStatus.SUCCESS
        assert run.tags["dagster/run_key"] == "gates:0:0"
        assert queue.depth().ready == queue.depth().in_flight == 0
        (event,) = gates.instance.all_logs(run.run_id, of_type=dg.DagsterEventType.ASSET_MATERIALIZATION)
        assert event.asset_materialization is not None
        assert event.asset_materialization.metadata["dagster/row_count"].value == 5

        iterate(gates)
        assert len(gates.instance.get_runs()) == 1
        first, second, *_ = gates.ticks("orders_gate")  # it ticks again while the other sensor is not due yet
        assert (first.status.value, first.run_keys) == ("SUCCESS", ["gates:0:0"])
        assert second.status.value == "SKIPPED"
        assert second.skip_reason.startswith("0 messages ready in 'gates'")

        failed = gates.ticks("gate_without_redis")[0]
        assert failed.status.value == "FAILURE"
        assert f"127.0.0.1:{port}" in failed.error.to_string()
        assert failed.run_ids == []

        queue.publish_many({"n": number} for number in range(3))
        iterate(gates)
        assert {run.tags["dagster/run_key"] for run in gates.instance.get_runs()} == {"gates:0:0", "gates:5:0"}

        with RedisMessageQueue("returns", url=url) as returns:
            returns.publish_many({"n": number} for number in range(3))
            iterate(gates)
            run = next(run for run in gates.instance.get_runs() if run.tags["dagster/run_key"] == "returns:0:0")
            assert (run.status, run.asset_selection) == (dg.DagsterRunStatus.SUCCESS, {dg.AssetKey("returned")})
            assert returns.depth().ready == 0
        tick = next(tick for tick in gates.ticks("several_gates") if tick.run_keys)
        assert f"127.0.0.1:{port}" in tick.cursor
        assert '"gates"' in tick.cursor
    queue.close()
