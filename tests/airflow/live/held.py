"""A run whose task is held in its work, until the test lets it continue or kills it."""

from __future__ import annotations

from pathlib import Path

from sluicegate import RedisMessageQueue
from tests.airflow.live.deployment import LiveDeployment
from tests.support.waiting import wait_until


class Held:
    """A run whose task is held at a place of its work."""

    def __init__(self, deployment: LiveDeployment, queue: RedisMessageQueue, folder: Path) -> None:
        self.deployment = deployment
        self.queue = queue
        self.folder = folder

    def start(self, dag_id: str, task_id: str, **conf: object) -> None:
        """Start a run and wait until its task is held."""
        self.dag_id, self.task_id = dag_id, task_id
        self.deployment.ready(dag_id)
        self.run_id = self.deployment.trigger(dag_id, queue=self.queue.name, folder=str(self.folder), **conf)
        wait_until((self.folder / "held").exists, f"{task_id!r} is held")

    def kill_and_retry(self) -> None:
        """Kill the task and its worker, and wait until a retry has finished the run."""
        self.deployment.kill_worker(self.dag_id, self.run_id, self.task_id)
        (self.folder / "go").touch()
        self.deployment.wait_for_run(self.dag_id, self.run_id)
        assert self.deployment.instance(self.dag_id, self.run_id, self.task_id)["try_number"] == 2

    def xcom(self, task_id: str) -> dict[str, int]:
        found: dict[str, int] = self.deployment.xcom(self.dag_id, self.run_id, task_id)
        return found


def check_settled(queue: RedisMessageQueue, count: int) -> None:
    """Check that each of so many messages was acked once, and that nothing is left."""
    depth = queue.depth()
    assert (depth.ready, depth.in_flight, depth.dead) == (0, 0, 0)
    assert queue.stats().acked == count
