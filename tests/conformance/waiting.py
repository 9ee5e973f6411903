"""Waiting for a condition, with a deadline."""

from __future__ import annotations

import time
from collections.abc import Callable

DEADLINE_SECONDS = 60.0


def wait_until(condition: Callable[[], object], what: str, seconds: float = DEADLINE_SECONDS) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"not within {seconds} s: {what}"
        time.sleep(0.002)
