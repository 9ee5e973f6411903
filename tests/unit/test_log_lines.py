"""Lines for whoever runs a driver reach him with and without logging set up, and once."""

from __future__ import annotations

import io
import logging
import sys

import pytest

from sluicegate import log_lines
from sluicegate.draining import progress
from sluicegate.draining.progress import DrainProgress
from sluicegate.log_lines import log_line


@pytest.fixture
def log(monkeypatch: pytest.MonkeyPatch) -> logging.Logger:
    """Return the logger of a program that sets no logging up; pytest adds handlers to every logger that it can find."""
    alone = logging.Logger("sluicegate")
    monkeypatch.setattr(log_lines, "_log", alone)
    return alone


def test_without_logging_a_line_goes_to_stderr(log: logging.Logger, capsys: pytest.CaptureFixture[str]) -> None:
    log_line(logging.INFO, "100 % done")

    assert capsys.readouterr().err == "100 % done\n"


def test_a_warning_is_there_once(log: logging.Logger, capsys: pytest.CaptureFixture[str]) -> None:
    """Python itself writes warnings where there is no handler."""
    log_line(logging.WARNING, "half is done")

    assert capsys.readouterr().err == "half is done\n"


def test_with_logging_a_line_goes_there_only(log: logging.Logger, capsys: pytest.CaptureFixture[str]) -> None:
    kept = io.StringIO()
    log.addHandler(logging.StreamHandler(kept))

    log_line(logging.INFO, "done")

    assert (capsys.readouterr().err, kept.getvalue()) == ("", "done\n")


@pytest.mark.parametrize("stderr", [None, object()])
def test_a_stderr_that_takes_no_text_is_no_error(
    log: logging.Logger, monkeypatch: pytest.MonkeyPatch, stderr: object
) -> None:
    monkeypatch.setattr(sys, "stderr", stderr)

    log_line(logging.INFO, "done")


def test_a_long_drain_shows_lines_in_a_program_that_sets_no_logging_up(
    log: logging.Logger, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = progress._Lines()
    for second in (9.0, 11.0, 20.0):
        lines.show(DrainProgress("run", "orders", second, acked=100, failed=0, ready=50, in_flight=10))

    assert capsys.readouterr().err.splitlines() == [
        "drain 'run' of queue 'orders': 100 messages acked in 11 s (9/s), 50 ready, 10 in flight, about 7 s left"
    ]
