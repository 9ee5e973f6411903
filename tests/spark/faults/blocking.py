"""Handlers that block until the test lets them continue."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from pyspark import cloudpickle

from sluicegate import Message
from sluicegate.spark import DrainContext
from tests.spark.faults.sinks import Before
from tests.support import waiting
from tests.support.waiting import wait_until

# Executors cannot import the tests, so these modules are pickled by value.
for _module in (sys.modules[__name__], waiting):
    cloudpickle.register_pickle_by_value(_module)

WORKER_SECONDS = 120.0  # a first task starts a daemon and imports
_MAX_SECONDS = 120.0


def block(here: Path, ids: list[str]) -> None:
    """Block, once for each `here`, until a file `go on` lies beside it."""
    if here.exists():
        return
    here.write_text(json.dumps(ids))
    until_released(here)


def until_released(here: Path) -> None:
    """Return once a file `go on` lies beside `here`."""
    wait_until(here.with_name("go on").exists, "the test lets it continue", _MAX_SECONDS)


def blocking(folder: Path, chunk: int = 1) -> Before:
    """Return a step for a handler that blocks once in every partition."""

    def before(batch: list[Message], ctx: DrainContext) -> None:
        if ctx.chunk == chunk:
            block(folder / f"blocked-{ctx.partition}", [message.id for message in batch])

    return before


def arrived(folder: Path, count: int = 1) -> bool:
    """Return whether that many handlers are blocked."""
    return len(list(folder.glob("blocked-*"))) >= count
