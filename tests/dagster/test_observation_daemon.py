"""A sensor daemon that crashes in the middle of a tick stores no observation and no evaluation twice."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import dagster as dg
import pytest

from sluicegate import RedisMessageQueue
from tests.dagster.helpers import SensorDaemon, daemon
from tests.dagster.observing import fill, stored
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.dagster, pytest.mark.slow, pytest.mark.full, pytest.mark.timeout(300)]


def iterate(observed: SensorDaemon) -> Any:
    """Run iterations until the sensor has ticked once more, and return that tick."""
    before = len(observed.ticks("observed")) if observed.has_ticked else 0

    def ticked() -> bool:
        observed.iterate()
        return len(observed.ticks("observed")) > before

    wait_until(ticked, "the sensor ticks", seconds=60)
    return observed.ticks("observed")[-1]


def evaluations(instance: dg.DagsterInstance) -> list[bool]:
    """Return what the check's evaluations said, the first first."""
    key = dg.AssetCheckKey(dg.AssetKey("orders_queue"), "queue_depth")
    records = instance.event_log_storage.get_asset_check_execution_history(key, limit=10)
    return [record.status.value == "SUCCEEDED" for record in reversed(records)]


def test_a_tick_that_crashed_after_its_first_event_stores_the_rest_and_repeats_nothing(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OBSERVED_REDIS_URL", url)
    with (
        RedisMessageQueue("observed", url=url) as queue,
        daemon(Path(__file__).with_name("observed.py")) as observed,
    ):
        fill(queue, 3)
        instance = observed.instance
        store = instance.report_runless_asset_event

        def crash(event: Any) -> None:
            store(event)
            raise RuntimeError("the daemon crashes here")

        with monkeypatch.context() as crashing:
            crashing.setattr(instance, "report_runless_asset_event", crash)
            assert iterate(observed).status.value == "FAILURE"
        assert (evaluations(instance), stored(instance, "orders_queue")) == ([False], [])

        tick = iterate(observed)
        assert tick.status.value == "SKIPPED"
        assert "observed as version 0:0" in tick.skip_reason
        iterate(observed)
        assert evaluations(instance) == [False]
        assert [event.tags["dagster/data_version"] for event in stored(instance, "orders_queue")] == ["0:0"]

        queue.claim(1)
        iterate(observed)
        assert evaluations(instance) == [False, True]
        assert len(stored(instance, "orders_queue")) == 1
        assert instance.get_runs() == []
