"""Run Airflow in a separate process, log its output to a file, and watch its metadata database."""

from __future__ import annotations

import contextlib
import os
import signal
import sqlite3
import subprocess
import sys
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

from example_dags.demo.paths import PROJECT, Paths

__all__ = ["TASKS", "TaskRun", "Workflow", "WorkflowError"]

DAG = "flights"
TASKS = ("publish_year", "publish_month_again", "gate", "drain", "average_delays")
_STOP_SECONDS = 10


class WorkflowError(RuntimeError):
    """Airflow could not be set up."""


@dataclass(frozen=True, slots=True)
class TaskRun:
    """Holds the state of a task of the watched run; times are seconds since the epoch."""

    state: str
    started: float | None
    ended: float | None


class Workflow:
    """Runs the DAG once with `dag.test()`.

    Args:
        paths: the folders of the demo.
        environment: the environment of the process, see `Paths.environment`.
    """

    def __init__(self, paths: Paths, environment: dict[str, str]) -> None:
        self._paths = paths
        self._environment = environment
        self._process: subprocess.Popen[bytes] | None = None
        self._earlier_runs = 0
        self._seen: dict[str, TaskRun] = {}

    @property
    def pid(self) -> int:
        """Return the id of the process that runs the tasks, an ancestor of Spark's workers; 0 before the start."""
        return self._process.pid if self._process else 0

    def migrate(self) -> None:
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

    def tasks(self) -> dict[str, TaskRun]:
        """Return the tasks of this run that Airflow has started; the last answer again while the database is busy."""
        query = (
            "SELECT task_id, state, start_date, end_date FROM task_instance WHERE run_id = "
            "(SELECT run_id FROM dag_run WHERE dag_id = ? AND id > ? ORDER BY id DESC LIMIT 1) AND dag_id = ?"
        )
        rows = self._select(query, DAG, self._earlier_runs, DAG)
        if rows:
            self._seen = {task: TaskRun(state or "", _epoch(start), _epoch(end)) for task, state, start, end in rows}
        return self._seen

    def stop(self) -> None:
        """End the process and every process that it started, if it still runs."""
        process = self._process
        if process is None or process.poll() is not None:
            return
        for number in (signal.SIGTERM, signal.SIGKILL):
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, number)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(_STOP_SECONDS)
                return

    def _run(self, *arguments: str) -> subprocess.Popen[bytes]:
        with self._paths.airflow_log.open("ab") as log:
            return subprocess.Popen(
                [sys.executable, *arguments],
                cwd=PROJECT,
                env=self._environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                # A separate process group, so that Spark's JVM ends with it.
                start_new_session=True,
            )

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
