"""A DAG that is scheduled on an asset drains what was published while it was paused."""

from __future__ import annotations

from pathlib import Path

import pytest

from sluicegate import RedisMessageQueue
from tests.airflow.live.api import EVERY_SECONDS, RUN_SECONDS
from tests.airflow.live.deployment import LiveDeployment
from tests.support import handlers
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.airflow, pytest.mark.slow, pytest.mark.full, pytest.mark.timeout(600)]


def test_messages_wait_while_the_dag_of_their_asset_is_paused_and_none_is_lost(
    deployment: LiveDeployment, tmp_path: Path
) -> None:
    def publish(start: int) -> None:
        run_id = deployment.trigger("asset_publishes", folder=str(tmp_path), count=10, start=start)
        deployment.wait_for_run("asset_publishes", run_id)

    queue = RedisMessageQueue("live-assets", url=deployment.redis.url)
    deployment.ready("asset_publishes")
    deployment.ready("asset_drains")
    publish(0)
    wait_until(lambda: queue.stats().acked == 10, "the asset starts a run", RUN_SECONDS, EVERY_SECONDS)

    deployment.pause("asset_drains")
    publish(10)
    publish(20)
    assert len(deployment.asset_events(source_dag_id="asset_publishes")) == 3
    assert queue.depth().ready == 20
    assert len(deployment.run_states("asset_drains")) == 1

    deployment.unpause("asset_drains")
    publish(30)
    wait_until(lambda: queue.stats().acked == 40, "the next event starts a run", RUN_SECONDS, EVERY_SECONDS)

    runs = deployment.run_states("asset_drains")
    deployment.wait_for_runs("asset_drains", set(runs))
    assert len(runs) == 2
    assert handlers.numbers(tmp_path) == list(range(40))
    assert queue.depth().ready == 0
    queue.close()
