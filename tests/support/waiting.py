"""Waiting for a condition, with a deadline."""

from __future__ import annotations

import time
from collections.abc import Callable

DEADLINE_SECONDS = 60.0
# A bound for what happens at once, even on a busy machine. The behaviour it excludes takes a minute or more.
AT_ONCE_SECONDS = 20.0
EVERY_SECONDS = 0.002


def wait_until(
    condition: Callable[[], object],
    what: str,
    seconds: float = DEADLINE_SECONDS,
    every_seconds: float = EVERY_SECONDS,
) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"not within {seconds} s: {what}"
        time.sleep(every_seconds)
