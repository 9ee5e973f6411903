"""Lines for the person who runs a program: in its log, or on stderr where logging is not configured."""

from __future__ import annotations

import logging
import sys
from contextlib import suppress

__all__ = ["log_line"]

_log = logging.getLogger("sluicegate")


def log_line(level: int, line: str) -> None:
    """Log a line.

    A program that does not configure logging, as most Spark drivers and Spark's own processes, would drop everything
    below a warning. There the line goes to stderr, which ends in Spark's logs.
    """
    _log.log(level, "%s", line)
    if level < logging.WARNING and not _log.hasHandlers():
        with suppress(Exception):  # stderr may be closed, or None
            sys.stderr.write(f"{line}\n")
            sys.stderr.flush()
