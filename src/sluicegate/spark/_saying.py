"""What a driver is told: by the log, and where nobody has set logging up, on stderr."""

from __future__ import annotations

import logging
import sys
from contextlib import suppress

__all__ = ["say"]

_log = logging.getLogger("sluicegate")


def say(level: int, line: str) -> None:
    """Log a line.

    A program that sets no logging up, as most drivers and Spark's own processes, would drop what is below a warning:
    there it goes to stderr, which ends in Spark's logs.
    """
    _log.log(level, "%s", line)
    if level < logging.WARNING and not _log.hasHandlers():
        with suppress(Exception):  # stderr may be closed, or None
            sys.stderr.write(f"{line}\n")
            sys.stderr.flush()
