"""A deployment on PostgreSQL, with two schedulers that run tasks side by side."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from sluicegate import RedisMessageQueue
from tests.airflow.live.deployment import LiveDeployment
from tests.airflow.live.held import Held, check_settled
from tests.support import handlers

POSTGRESQL = pytest.mark.parametrize("deployment", ["postgresql"], indirect=True)
pytestmark = [pytest.mark.airflow, pytest.mark.slow, pytest.mark.full, pytest.mark.timeout(600), POSTGRESQL]

RUNS = 20
PART = 100


def test_a_burst_of_runs_under_two_schedulers_handles_each_message_once(
    deployment: LiveDeployment, queue: RedisMessageQueue, tmp_path: Path
) -> None:
    queue.publish_many(handlers.messages(tmp_path, RUNS * PART))
    deployment.ready("shares")

    runs = {deployment.trigger("shares", queue=queue.name, folder=str(tmp_path)) for _ in range(RUNS)}
    deployment.wait_for_runs("shares", runs, seconds=300)

    assert [deployment.xcom("shares", run_id, "drain")["acked"] for run_id in runs] == [PART] * RUNS
    assert handlers.numbers(tmp_path) == list(range(RUNS * PART))
    check_settled(queue, RUNS * PART)
    for name in ("scheduler", "scheduler-2"):
        assert "Workload finished" in deployment.components[name].log(), f"{name} ran no task"


def test_a_killed_scheduler_leaves_its_run_to_the_other_one_and_each_message_is_acked_once(held: Held) -> None:
    held.queue.publish_many(handlers.messages(held.folder, 50))
    held.start("drains", "drain")

    killed = held.deployment.component_of(held.dag_id, held.run_id, held.task_id)
    held.deployment.kill(killed)
    (held.folder / "go").touch()
    held.deployment.wait_for_run(held.dag_id, held.run_id)
    held.deployment.start(killed)

    assert held.xcom("drain")["taken_over"] == 1
    assert Counter(handlers.numbers(held.folder)) == Counter([*range(50), *range(20, 30)])
    check_settled(held.queue, 50)
