"""A sensor daemon's own iterations: one report per completion of a batch, wherever the daemon dies."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import dagster as dg
import pytest

from sluicegate import RedisMessageQueue
from tests.dagster import batched
from tests.dagster.helpers import SensorDaemon, daemon
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.dagster, pytest.mark.slow, pytest.mark.full, pytest.mark.timeout(300)]


@pytest.fixture
def complete(url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[SensorDaemon]:
    """Yield a daemon whose code location publishes, drains and reports."""
    monkeypatch.setenv("BATCHED_REDIS_URL", url)
    with daemon(Path(__file__).with_name("batched.py")) as complete:
        yield complete


def reports(complete: SensorDaemon) -> list[dg.DagsterRun]:
    runs = complete.instance.get_runs(dg.RunsFilter(tags={"sluicegate/sensor": "complete"}))
    return [run for run in reversed(runs) if run.status is dg.DagsterRunStatus.SUCCESS]


def ticks(complete: SensorDaemon) -> int:
    known = [state.instigator_name for state in complete.instance.all_instigator_state()]
    return len(complete.ticks("complete")) if "complete" in known else 0


def test_a_dag_goes_on_once_for_each_completion_of_its_batch(url: str, complete: SensorDaemon) -> None:
    job = batched.defs.resolve_implicit_global_asset_job_def()
    done = job.execute_in_process(instance=complete.instance, asset_selection=[dg.AssetKey("published")])
    assert done.success

    def crashed() -> bool:
        """Run iterations until the daemon died right after it had created the run of the report."""
        before = ticks(complete)
        with suppress(KeyboardInterrupt):
            complete.iterate({"complete": {"RUN_CREATED": signal.SIGINT}})
        return ticks(complete) > before and bool(
            complete.instance.get_runs(dg.RunsFilter(tags={"sluicegate/sensor": "complete"}))
        )

    def iterated(more: int) -> None:
        begun = ticks(complete)

        def ticked() -> bool:
            complete.iterate()
            return ticks(complete) >= begun + more

        wait_until(ticked, f"{more} ticks")

    wait_until(crashed, "the daemon dies after it created the run")
    iterated(3)
    (first,) = reports(complete)
    with RedisMessageQueue("batched", url=url) as queue:
        batch_id = first.tags["sluicegate/batch_id"]
        status = queue.get_batch(batch_id).status()
        assert (status.done, status.is_complete) == (5, True)
        assert first.tags["dagster/run_key"].startswith("batch:batched:")
        assert done.run_id in batch_id
        iterated(2)
        assert len(reports(complete)) == 1

        job.execute_in_process(instance=complete.instance, asset_selection=[dg.AssetKey("published")])
        wait_until(lambda: queue.depth().ready == 5, "another run publishes another batch")
        iterated(4)
    assert len({run.tags["sluicegate/batch_id"] for run in reports(complete)}) == len(reports(complete)) == 2
