"""Run a DAG whose tasks run as in a deployment: each in a process that Airflow's supervisor forks.

Usage: python -m tests.airflow.supervised HOME DAG_FILE DAG_ID QUEUE

`dag.test()` runs tasks in its own process. Here the supervisor forks, without access to the database, and forwards
signals. The API that it talks to is in this process.
"""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

# The main module of Airflow's own processes imports this, which fails in a task.
from airflow.__main__ import main  # noqa: F401


def run_supervised(ti: Any, task: Any, file: str) -> Any:
    """Do what `run_task_in_process` does, in a process of its own."""
    from airflow.executors.workloads.base import BundleInfo
    from airflow.models.taskinstance import TaskInstance
    from airflow.sdk.execution_time import supervisor
    from airflow.utils.session import create_session
    from sqlalchemy import select

    supervisor.supervise_task(
        ti=ti,
        bundle_info=BundleInfo(name="dags-folder"),
        dag_rel_path=file,
        token="",
        client=supervisor.InProcessTestSupervisor._api_client(task.dag),
    )
    which = {"dag_id": ti.dag_id, "task_id": ti.task_id, "run_id": ti.run_id, "map_index": ti.map_index}
    with create_session() as session:  # by its names: a retry has another id
        state = session.scalars(select(TaskInstance).filter_by(**which)).one().state
    return SimpleNamespace(msg=None, error=None, ti=SimpleNamespace(state=state, task=task))


def run_dag(home: Path, file: Path, dag_id: str, queue: str) -> None:
    """Run the DAG to its end."""
    from airflow.sdk.execution_time import supervisor

    from tests.airflow.deployment import Deployment

    supervisor.run_task_in_process = lambda ti, task: run_supervised(ti, task, file.name)
    with Deployment(home).dags([file]) as dags:
        dags[dag_id].test(run_conf={"queue": queue})


if __name__ == "__main__":
    run_dag(Path(sys.argv[1]), Path(sys.argv[2]), *sys.argv[3:])
