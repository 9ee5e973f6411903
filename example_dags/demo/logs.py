"""Find the lines about a failure in the logs of Airflow, Dagster and Spark."""

from __future__ import annotations

import re
from pathlib import Path

__all__ = ["last_error", "last_lines"]

_TAIL_BYTES = 256 * 1024
# Information of Airflow, Spark and Dagster, and Airflow's lines about the tasks after the one that failed.
_BESIDE_THE_POINT = ("[info ", "[debug ", " INFO ", " DEBUG ", "INFO\x1b[0m", "No tasks to run")
_EXCEPTION = re.compile(r"^[A-Za-z_][\w.]*(?:Error|Exception|Interrupt)\b.*")


def last_lines(path: Path, count: int = 12) -> list[str]:
    """Return the last lines of a log above the level of information, or its last lines if there are none."""
    lines = _tail(path)
    grave = [line for line in lines if not any(mark in line for mark in _BESIDE_THE_POINT)]
    return (grave or lines)[-count:]


def last_error(path: Path) -> str:
    """Return the last line of a log that names an exception, "" if there is none."""
    found = [line for line in _tail(path) if _EXCEPTION.match(line)]
    return found[-1] if found else ""


def _tail(path: Path) -> list[str]:
    if not path.is_file():
        return []
    with path.open("rb") as file:
        file.seek(max(0, path.stat().st_size - _TAIL_BYTES))
        text = file.read().decode(errors="replace")
    return [line.rstrip() for line in text.splitlines() if line.strip()]
