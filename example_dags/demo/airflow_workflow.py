"""Run Airflow in a separate process, log its output to a file, and watch its metadata database."""

from __future__ import annotations

import contextlib
import json
import sqlite3
import time
from dataclasses import replace
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

from example_dags.demo.orchestrators import ROLES
from example_dags.demo.paths import PROJECT, Paths
from example_dags.demo.progress import StepState
from example_dags.demo.workflow import BackgroundProcess, StepRun, WorkflowError

__all__ = ["AirflowWorkflow"]

DAG = "flights"
# The tasks have the names of their roles. A task in any other state has not started.
_STATES: dict[str, StepState] = {
    "success": "done",
    "failed": "failed",
    "upstream_failed": "waiting",
    "running": "running",
}


class AirflowWorkflow:
    """Runs the DAG once with `dag.test()`.

    Args:
        paths: the folders of the demo.
        environment: what the tasks read, see `Paths.environment`.
    """

    def __init__(self, paths: Paths, environment: dict[str, str]) -> None:
        self._paths = paths
        inherited = {name: value for name, value in environment.items() if not name.startswith("AIRFLOW")}
        self._environment = inherited | {
            "AIRFLOW_HOME": str(paths.airflow_home),
            "AIRFLOW__CORE__DAGS_FOLDER": str(PROJECT / "example_dags"),
            "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
            "AIRFLOW__CORE__UNIT_TEST_MODE": "False",
            "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN": f"sqlite:///{paths.airflow_database}",
            "AIRFLOW__LOGGING__BASE_LOG_FOLDER": str(paths.logs / "airflow"),
            "AIRFLOW_CONN_SLUICEGATE_DEFAULT": json.dumps({"conn_type": "sluicegate", "extra": {"url": paths.url}}),
        }
        self._process: BackgroundProcess | None = None
        self._earlier_runs = 0
        self._seen: dict[str, StepRun] = {}
        self._began: float | None = None

    @property
    def pid(self) -> int:
        """Return the id of the process that runs the tasks; 0 before the start."""
        return self._process.pid if self._process else 0

    @property
    def log(self) -> Path:
        """Return Airflow's log."""
        return self._paths.airflow_log

    @property
    def gate_opened(self) -> float | None:
        """Return when the sensor's task ended."""
        gate = self._seen.get("gate")
        return gate.ended if gate else None

    def prepare(self) -> None:
        """Create the metadata database, once per version of Airflow.

        Raises:
            WorkflowError: Airflow failed; its log shows the reason.
        """
        made_by = self._paths.airflow_home / ".made-by"
        current = version("apache-airflow-core")
        if made_by.is_file() and made_by.read_text() == current:
            return
        self._paths.airflow_home.mkdir(parents=True, exist_ok=True)
        done = self._run("-m", "airflow", "db", "migrate").wait()
        if done != 0:
            raise WorkflowError(f"`airflow db migrate` ended with code {done}")
        made_by.write_text(current)

    def start(self) -> None:
        """Start the run in the background."""
        self._earlier_runs = self._last_run()
        self._process = self._run("-m", "example_dags.demo.dag_process")

    def poll(self) -> int | None:
        """Return the exit code, None while it runs."""
        return self._process.poll() if self._process else None

    def steps(self) -> dict[str, StepRun]:
        """Return the tasks of this run that Airflow has started; the last answer again while the database is busy."""
        query = (
            "SELECT task_id, state, start_date, end_date FROM task_instance WHERE run_id = "
            "(SELECT run_id FROM dag_run WHERE dag_id = ? AND id > ? ORDER BY id DESC LIMIT 1) AND dag_id = ?"
        )
        rows = self._select(query, DAG, self._earlier_runs, DAG)
        if rows:
            self._seen = {
                task: StepRun(_STATES[state], _epoch(start), _epoch(end))
                for task, state, start, end in rows
                if state in _STATES
            }
            self._correct_the_start()
        return self._seen

    def stop(self) -> None:
        """End the process and every process that it started, if it still runs."""
        if self._process:
            self._process.stop()

    def _correct_the_start(self) -> None:
        """Let the first task begin when it is first seen: after its start time, it waits for Airflow's own API."""
        first = self._seen.get(ROLES[0])
        if first is None:
            return
        self._began = self._began or (time.time() if first.state == "running" else first.started)
        self._seen[ROLES[0]] = replace(first, started=self._began)

    def _run(self, *arguments: str) -> BackgroundProcess:
        return BackgroundProcess(*arguments, environment=self._environment, log=self.log)

    def _last_run(self) -> int:
        rows = self._select("SELECT max(id) FROM dag_run WHERE dag_id = ?", DAG)
        return int(rows[0][0] or 0) if rows else 0

    def _select(self, query: str, *values: object) -> list[tuple[Any, ...]]:
        database: Path = self._paths.airflow_database
        try:
            with contextlib.closing(sqlite3.connect(f"{database.as_uri()}?mode=ro", uri=True, timeout=1)) as connection:
                return connection.execute(query, values).fetchall()
        except sqlite3.OperationalError:  # busy, or not created yet
            return []


def _epoch(text: object) -> float | None:
    return datetime.fromisoformat(str(text)).replace(tzinfo=UTC).timestamp() if text else None
