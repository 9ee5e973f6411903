"""What a person reads at the end, above all when something failed."""

from __future__ import annotations

import io
from pathlib import Path

from rich.console import Console

from example_dags.demo.logs import last_error, last_lines
from example_dags.demo.progress import Progress
from example_dags.demo.report import print_failure
from example_dags.demo.run import StepFailedError


def test_a_failure_names_the_step_the_last_log_lines_and_what_to_do(tmp_path: Path) -> None:
    log = tmp_path / "airflow.log"
    log.write_text(
        "".join(f"2026-11-28 [info     ] line {number}\n" for number in range(50)) + "MemoryError: too much\n"
    )
    failure = StepFailedError(
        Progress().steps["drain"], "Airflow's task drain failed", logs=(log, tmp_path / "none.log")
    )
    out = io.StringIO()
    print_failure(Console(file=out, width=100), failure)
    shown = out.getvalue()

    assert "Drain with Spark" in shown
    assert "step drain" in shown
    assert "Airflow's task drain failed" in shown
    assert "MemoryError: too much" in shown
    assert "What to do: Spark needs about 2 GB of free memory" in shown
    assert "none.log" not in shown


def test_the_last_lines_leave_out_what_is_mere_information(tmp_path: Path) -> None:
    log = tmp_path / "spark.log"
    log.write_text("x" * 300_000 + "\n01:00:00 WARN A: one\n\n01:00:01 INFO B: two\n01:00:02 ERROR C: three\n")

    assert last_lines(log, 2) == ["01:00:00 WARN A: one", "01:00:02 ERROR C: three"]
    log.write_text("01:00:01 INFO B: two\n01:00:02 INFO C: three\n")
    assert last_lines(log, 1) == ["01:00:02 INFO C: three"]
    assert last_lines(tmp_path / "none.log") == []


def test_the_last_error_is_the_point_of_the_last_traceback(tmp_path: Path) -> None:
    log = tmp_path / "airflow.log"
    log.write_text(
        "Traceback (most recent call last):\n  File x\nValueError: first\n\nThe above exception was the direct cause:\n"
        "some.module.PublishStoppedError: orders.csv, line 7: no number\n[info     ] KeyError: told in passing\n"
    )

    assert last_error(log) == "some.module.PublishStoppedError: orders.csv, line 7: no number"
    log.write_text("all is well\n")
    assert last_error(log) == last_error(tmp_path / "none.log") == ""
