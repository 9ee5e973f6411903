"""Parts of a benchmark that go wrong, each in its own way, for the test of the benchmark."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator

from benchmarks.part import Found, Settings, Step
from benchmarks.report import Bar

__all__ = ["dies", "fails", "hangs", "measures", "starts_nothing"]


def measures(settings: Settings) -> Iterator[Step]:
    """Measure as many times as the run has rounds."""
    yield (
        "speed",
        lambda: Found(
            {"Speed": {"ours": {"x": settings["rounds"]}}},
            [Bar("speed", "fast", settings["rounds"], limit=2, at_least=True, unit="x", detail="")],
        ),
    )


def fails(settings: Settings) -> Iterator[Step]:
    """Fail in the first step only."""
    yield "first", _raise
    yield from measures(settings)


def starts_nothing(settings: Settings) -> Iterator[Step]:
    raise OSError("no server\nfor this part")
    yield from measures(settings)


def dies(settings: Settings) -> Iterator[Step]:
    """End like a process that was killed for its memory."""
    yield from measures(settings)
    os.kill(os.getpid(), signal.SIGKILL)


def hangs(settings: Settings) -> Iterator[Step]:
    yield from measures(settings)
    threading.Event().wait()


def _raise() -> Found:
    raise AssertionError("more than one line:\n  all leases have [red]expired[/]\n")
