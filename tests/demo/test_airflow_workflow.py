"""Airflow is watched through its database, and ended with everything that it started."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from example_dags.demo.airflow_workflow import AirflowWorkflow
from example_dags.demo.paths import Paths
from example_dags.demo.workflow import WorkflowError


@pytest.fixture
def database(paths: Paths) -> Path:
    """Return a metadata database with an earlier run, as far as the demo looks at it."""
    paths.airflow_home.mkdir(parents=True)
    with closing(sqlite3.connect(paths.airflow_database)) as connection:
        connection.execute("CREATE TABLE dag_run (id INTEGER PRIMARY KEY, dag_id TEXT, run_id TEXT)")
        connection.execute("CREATE TABLE task_instance (dag_id, run_id, task_id, state, start_date, end_date)")
        connection.execute("INSERT INTO dag_run VALUES (1, 'flights', 'earlier')")
        connection.execute("INSERT INTO task_instance VALUES ('flights', 'earlier', 'gate', 'success', NULL, NULL)")
        connection.commit()
    return paths.airflow_database


def workflow(paths: Paths, monkeypatch: pytest.MonkeyPatch, script: str) -> AirflowWorkflow:
    """Return a workflow whose process runs a script instead of Airflow."""
    made = AirflowWorkflow(paths, dict(os.environ))
    monkeypatch.setattr(sys, "executable", str(paths.home / "python"))
    program = paths.home / "python"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    return made


def test_only_the_tasks_of_this_run_are_told(paths: Paths, database: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    watched = workflow(paths, monkeypatch, "exit 0")
    watched.start()
    assert watched.steps() == {}

    with closing(sqlite3.connect(database)) as connection:
        connection.execute("INSERT INTO dag_run VALUES (2, 'flights', 'now'), (3, 'other', 'else')")
        row = ("flights", "now", "gate", "success", "2026-11-28 01:29:59.250000", "2026-11-28 01:30:00.750000")
        connection.execute("INSERT INTO task_instance VALUES (?, ?, ?, ?, ?, ?)", row)
        connection.execute("INSERT INTO task_instance VALUES ('flights', 'now', 'drain', NULL, NULL, NULL)")
        connection.commit()
    steps = watched.steps()

    assert list(steps) == ["gate"], "a task without a state has not started"
    assert steps["gate"].state == "done"
    assert steps["gate"].started is not None
    assert steps["gate"].ended == steps["gate"].started + 1.5
    assert watched.gate_opened == steps["gate"].ended


def test_a_database_that_is_busy_or_missing_is_no_error(
    paths: Paths, monkeypatch: pytest.MonkeyPatch, database: Path
) -> None:
    watched = workflow(paths, monkeypatch, "exit 0")
    database.unlink()
    watched.start()

    assert watched.steps() == {}


def test_the_database_is_made_once_per_version_and_a_failure_is_told(
    paths: Paths, monkeypatch: pytest.MonkeyPatch
) -> None:
    failing = workflow(paths, monkeypatch, "echo the reason; exit 3")
    with pytest.raises(WorkflowError, match=r"airflow db migrate.*code 3"):
        failing.prepare()
    assert paths.airflow_log.read_text() == "the reason\n"

    workflow(paths, monkeypatch, "echo migrated").prepare()
    workflow(paths, monkeypatch, "echo migrated again").prepare()
    assert paths.airflow_log.read_text() == "the reason\nmigrated\n"


def test_stopping_ends_what_the_process_started_too(paths: Paths, monkeypatch: pytest.MonkeyPatch) -> None:
    script = "sleep 300 & echo $! > child; wait"
    monkeypatch.setattr("example_dags.demo.workflow.PROJECT", paths.home)
    running = workflow(paths, monkeypatch, script)
    running.start()
    child = paths.home / "child"
    until_written = subprocess.run(["timeout", "30", "sh", "-c", f"until test -s '{child}'; do :; done"], check=True)
    pid = int(child.read_text())
    running.stop()

    assert until_written.returncode == 0
    assert running.poll() is not None
    ended = subprocess.run(
        ["timeout", "30", "sh", "-c", f"while ps -o stat= -p {pid} | grep -qv Z; do :; done"], check=False
    )
    assert ended.returncode == 0
