"""The clock that durations are measured by."""

from __future__ import annotations

import time

__all__ = ["elapsed_clock"]

_CLOCK: int = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


def elapsed_clock() -> float:
    """Return seconds by a monotonic clock that also counts suspension where the system has one."""
    return time.clock_gettime(_CLOCK)
