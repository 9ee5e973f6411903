"""The program behind `make test`: what it selects, and how it ends."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from scripts import matrix, run_tests
from scripts.run_tests import Run
from tests.support.project import ROOT
from tests.support.waiting import wait_until

REPORTED = """
import json, os, sys
report = open(os.environ["SLUICEGATE_TEST_REPORT"], "a")
print(json.dumps({"selected": 2}), file=report)
for outcome in ("passed", sys.argv[1]):
    print(json.dumps({"test": "tests/unit/test_x.py::" + outcome, "outcome": outcome, "seconds": 1.5}), file=report)
print(json.dumps({"not_run": "TLS: no program"}), file=report, flush=True)
print("what pytest said")
sys.exit(sys.argv[1] != "passed")
"""
# Two processes that end when they are interrupted, and say so.
INTERRUPTED = """
import sys, time
from pathlib import Path
from scripts import run_tests
from scripts.run_tests import Run

PROGRAM = '''
import sys, time
from pathlib import Path
folder, name = Path(sys.argv[1]), sys.argv[2]
try:
    (folder / name).touch()
    while True:  # a signal just before one long sleep would be noticed only after it
        time.sleep(0.05)
except KeyboardInterrupt:
    (folder / (name + " removed")).touch()
'''
run_tests.LOGS = Path(sys.argv[1])
runs = [Run(name, [sys.executable, "-c", PROGRAM, sys.argv[1], name]) for name in ("a", "b", "c")]
sys.exit(run_tests.execute(runs, at_once=2))
"""


@pytest.fixture(autouse=True)
def _logs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_tests, "LOGS", tmp_path)


def program(name: str, outcome: str) -> Run:
    return Run(name, [sys.executable, "-c", REPORTED, outcome])


def test_every_room_belongs_to_a_process() -> None:
    rooms = {folder.name for folder in (ROOT / "tests").iterdir() if any(folder.rglob("test_*.py"))}
    selected = run_tests.select([])

    assert {path.removeprefix("tests/") for paths in selected.values() for path in paths} == rooms
    assert next(iter(selected)) == "spark"
    assert {room for group in run_tests.TOGETHER for room in group} <= rooms


def test_the_tests_of_the_matrix_exist() -> None:
    named = {test for row in matrix.ROWS for test in row.tests if test.startswith("tests/")}

    assert len(named) > 5
    assert [name for name in named if not (ROOT / name).exists()] == []


def test_paths_select_processes_and_options_go_to_each() -> None:
    one, other = "tests/unit/test_keys.py::test_x", "tests/faults"

    assert run_tests.select(["-k", "lease", one, other]) == {
        "faults": ["-k", "lease", other],
        "unit": ["-k", "lease", one],
    }
    assert len(run_tests.select(["tests"])) == len(run_tests.select([])) > 4
    assert run_tests.select(["tests/spark/test_arrow.py"]) == {"spark": ["tests/spark/test_arrow.py"]}


def test_the_table_counts_by_room_and_names_what_did_not_run(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_tests.execute([program("one", "passed"), program("two", "passed"), program("three", "passed")]) == 0

    shown = capsys.readouterr().out
    assert "unit               6 passed       9 s" in shown
    assert shown.count("not run here: TLS: no program") == 1
    assert "all passed: 6 tests" in shown
    assert "what pytest said" not in shown


def test_one_failure_is_shown_with_its_output_and_fails_the_run(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_tests.execute([program("good", "passed"), program("bad", "failed")]) == 1

    shown = capsys.readouterr().out
    assert shown.count("what pytest said") == 1
    assert "3 passed       6 s  1 failed" in shown
    assert "FAILED: bad" in shown


def test_a_run_that_selects_nothing_fails(capsys: pytest.CaptureFixture[str]) -> None:
    nothing = [sys.executable, "-c", f"raise SystemExit({run_tests.NOTHING_SELECTED})"]

    assert run_tests.execute([Run("one", nothing), Run("two", nothing)]) == run_tests.NOTHING_SELECTED
    assert run_tests.execute([Run("one", nothing), program("two", "passed")]) == 0


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_ends_both_processes_in_their_own_way(number: int, tmp_path: Path) -> None:
    runner = subprocess.Popen(
        [sys.executable, "-c", INTERRUPTED, str(tmp_path)], cwd=ROOT, stdout=subprocess.PIPE, text=True, env=os.environ
    )
    wait_until(lambda: (tmp_path / "a").exists() and (tmp_path / "b").exists(), "two processes run")
    runner.send_signal(number)
    shown, _ = runner.communicate(timeout=60)

    assert runner.returncode == 130
    assert "interrupted" in shown
    assert {file.name for file in tmp_path.iterdir()} >= {"a removed", "b removed"}
    assert not (tmp_path / "c").exists()


@pytest.mark.parametrize(("complete", "code"), [("", 0), ("1", 1)])
def test_what_a_machine_cannot_run_is_listed_and_fails_a_complete_run(complete: str, code: int) -> None:
    settings = {"SLUICEGATE_TEST_WANTED": "redis 0.9", "SLUICEGATE_TEST_COMPLETE": complete}
    one = ["tests/topologies/test_core.py", "-k", "unix and published_message"]

    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *one],
        cwd=ROOT,
        env={name: value for name, value in os.environ.items() if name != run_tests.REPORT} | settings,
        capture_output=True,
        text=True,
        check=False,
    )

    assert "1 passed" in done.stdout
    assert "not run here: redis 0.9: no such program" in done.stdout
    assert done.returncode == code
