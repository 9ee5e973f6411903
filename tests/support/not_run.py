"""A run ends with a list of what the machine cannot run. A complete run must not have one."""

from __future__ import annotations

import pytest

_WHAT: list[str] = []


def note(what: str) -> None:
    """Add a line to that list: what cannot run, and why."""
    if what not in _WHAT:
        _WHAT.append(what)


class NotRun:
    """A plugin of pytest that prints the list.

    Args:
        complete: an entry in the list fails the run.
    """

    def __init__(self, complete: bool) -> None:
        self._complete = complete

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        if self._complete and _WHAT and session.exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED
        report = session.config.pluginmanager.get_plugin("RoomReport")
        for what in _WHAT if report else ():
            report.not_run(what)

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        for what in _WHAT:
            terminalreporter.write_line(f"not run here: {what}", red=self._complete, yellow=not self._complete)
        if self._complete and _WHAT:
            terminalreporter.write_line("SLUICEGATE_TEST_COMPLETE=1: what cannot run is an error", red=True)
