"""The path that every user takes, on a real deployment."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from sluicegate import RedisMessageQueue
from tests.airflow.live.deployment import LiveDeployment
from tests.support import handlers

pytestmark = [pytest.mark.airflow, pytest.mark.slow]


def test_messages_go_through_publish_gate_and_drain_in_runs_started_by_rest_and_by_the_command_line(
    deployment: LiveDeployment, queue_name: str, tmp_path: Path
) -> None:
    deployment.ready("gate")
    queues = {run_id: f"{queue_name}-{run_id}" for run_id in ("rest", "cli")}
    confs = {run_id: {"queue": name, "folder": str(tmp_path / run_id), "count": 25} for run_id, name in queues.items()}
    for run_id in queues:
        (tmp_path / run_id).mkdir()

    with ThreadPoolExecutor(1) as pool:
        command = ["dags", "trigger", "gate", "--run-id", "cli", "--conf", json.dumps(confs["cli"])]
        triggered = pool.submit(deployment.run, *command)
        deployment.trigger("gate", "rest", **confs["rest"])
        triggered.result()
    deployment.wait_for_runs("gate", set(queues))

    for run_id, name in queues.items():
        assert deployment.xcom("gate", run_id, "publish")["published"] == 25
        assert deployment.xcom("gate", run_id, "gate")["fired_by"] == "depth"
        assert deployment.xcom("gate", run_id, "drain")["acked"] == 25
        assert handlers.numbers(tmp_path / run_id) == list(range(25))
        queue = RedisMessageQueue(name, url=deployment.redis.url)
        depth, stats = queue.depth(), queue.stats()
        queue.close()
        assert (depth.ready, depth.in_flight, depth.dead) == (0, 0, 0)
        assert (stats.published, stats.claimed, stats.acked) == (25, 25, 25)
