"""The demo as a person runs it, on the first days of the year: real Airflow or Dagster, Spark and Redis."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from example_dags.demo.paths import PROJECT
from tests.demo.helpers import Row, some_rows, write_csv

pytestmark = [pytest.mark.slow, pytest.mark.spark, pytest.mark.timeout(400)]

COUNT = 9_000


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the demo's home, shared so that Airflow's database is made once."""
    return tmp_path_factory.mktemp("demo")


@pytest.fixture(scope="module")
def rows() -> list[Row]:
    return some_rows(COUNT)


def demo(home: Path, csv: Path, *options: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "example_dags.demo", "--home", str(home), "--csv", str(csv), *options]
    environment = os.environ | {"COLUMNS": "100"}
    return subprocess.run(
        command, cwd=PROJECT, env=environment, text=True, capture_output=True, timeout=380, check=False
    )


def assert_nothing_is_lost_and_nothing_acked_twice(home: Path, done: subprocess.CompletedProcess[str]) -> None:
    """Check the report, the files, and what a person reads, of a demo with a crash."""
    assert done.returncode == 0, done.stdout + done.stderr
    report: dict[str, Any] = json.loads((home / "report.json").read_text())
    expected = {
        "published": COUNT, "duplicates_refused": COUNT, "drained": COUNT, "acked": COUNT, "lost": 0, "acked_twice": 0,
        "written_twice": 0, "in_flight_left": 0, "matches_pandas": True, "crash": True, "taken_over": 1, "problems": [],
    }  # fmt: skip
    assert report | expected == report
    assert min(report["steps"].values()) > 0
    assert report["total_seconds"] > sum(report["steps"].values()) * 0.9
    assert (home / "gate.png").stat().st_size > 50_000
    # A folder per partition, a file per lease, and nothing of the dead worker.
    files = list((home / "flights").glob("partition=*/[!.]*.parquet"))
    assert len(files) == report["leases"] >= COUNT // (COUNT // 84)
    assert {file.parent.name for file in files} == {f"partition={number}" for number in range(4)}

    assert "killed (SIGKILL)" in done.stdout
    assert "taken over by the retry" in done.stdout
    assert "What you have just seen" in done.stdout
    assert not any(mark in done.stdout for mark in ("[info ", " INFO ", " DEBUG ")), "logs belong in their files"
    assert done.stderr == ""
    assert "SparkContext" in (home / "logs" / "spark.log").read_text()


@pytest.mark.airflow
def test_a_killed_worker_loses_nothing_and_acks_nothing_twice(home: Path, rows: list[Row], tmp_path: Path) -> None:
    done = demo(home, write_csv(tmp_path / "days.csv.zip", rows), "--crash")

    assert_nothing_is_lost_and_nothing_acked_twice(home, done)
    assert "DagRun Finished" in (home / "logs" / "airflow.log").read_text()


@pytest.mark.full
@pytest.mark.dagster
def test_with_dagster_a_killed_worker_loses_nothing_and_acks_nothing_twice(rows: list[Row], tmp_path: Path) -> None:
    done = demo(tmp_path, write_csv(tmp_path / "days.csv.zip", rows), "--crash", "--orchestrator", "dagster")

    assert_nothing_is_lost_and_nothing_acked_twice(tmp_path, done)
    log = (tmp_path / "logs" / "dagster.log").read_text()
    assert "Creating new run for flights_gate" in log
    assert "Launched 1 runs" in log, "the run came out of the daemon's run queue"


@pytest.mark.full
@pytest.mark.parametrize(
    ("orchestrator", "step", "reason"),
    [
        pytest.param(
            "airflow",
            "publish_year",
            "line 2002: transform raised ValueError; the 2 batches before it stay published",
            marks=pytest.mark.airflow,
        ),
        pytest.param(
            "dagster", "published_year", "invalid literal for int() with base 10: 'far'", marks=pytest.mark.dagster
        ),
    ],
)
def test_a_step_that_fails_is_named_with_its_last_log_lines_and_what_to_do(
    home: Path, rows: list[Row], tmp_path: Path, orchestrator: str, step: str, reason: str
) -> None:
    bad = [*rows[:2000], rows[2000] | {"distance": "far"}, *rows[2001:3000]]
    done = demo(home, write_csv(tmp_path / "bad.csv.zip", bad), "--orchestrator", orchestrator)

    assert done.returncode == 1
    assert f"Failed: Publish the year (step {step})" in done.stdout
    words = " ".join(done.stdout.replace("│", " ").split())
    assert reason in words
    assert "What to do: " in done.stdout
    assert not (home / "report.json").exists(), "nothing of the earlier run is left to be taken for this one's"
    assert done.stderr == ""
