"""Each finished test is a line of JSON in a file, for the program that runs the rooms."""

from __future__ import annotations

import json
from pathlib import Path

import pytest


class RoomReport:
    """A plugin of pytest; `scripts/run_tests.py` reads what it writes."""

    def __init__(self, file: Path) -> None:
        self._file = file.open("a")
        self._seconds = 0.0
        self._outcome = "passed"

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        self._write(selected=len(session.items))

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._seconds += report.duration
        if report.failed:
            self._outcome = "failed" if report.when == "call" else "error"
        elif report.skipped:
            self._outcome = "skipped"
        if report.when == "teardown":
            self._write(test=report.nodeid, outcome=self._outcome, seconds=round(self._seconds, 3))
            self._seconds, self._outcome = 0.0, "passed"

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed:
            self._write(test=report.nodeid, outcome="error", seconds=0.0)

    def not_run(self, what: str) -> None:
        """Report what this machine cannot run."""
        self._write(not_run=what)

    def _write(self, **event: object) -> None:
        print(json.dumps(event), file=self._file, flush=True)
