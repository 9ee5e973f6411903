"""Handlers that worker processes import by their name."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

from sluicegate import DrainContext, Message


def accept(batch: list[Message]) -> None:
    """Work on nothing."""


async def coroutine(batch: list[Message]) -> None:
    """Work on nothing, and only when it is awaited."""


def store(batch: list[Message], ctx: DrainContext) -> None:
    """Write the numbers of a batch into a file per lease; a message that says so fails at its first delivery."""
    if any(message.json().get("fails") and message.delivery_count == 1 for message in batch):
        raise ValueError("TEXT of the handler")
    _write(batch, ctx)


def store_columns(table: Any, ctx: DrainContext) -> None:
    """Write the numbers of a table into a file per lease."""
    ctx.output_file(os.environ["SLUICEGATE_TEST_FOLDER"], ".json").write_text(json.dumps(table["n"].to_pylist()))


def hold(batch: list[Message], ctx: DrainContext) -> None:
    """Say which process holds a batch, and work on it until the test lets it go or the process ends."""
    folder = Path(os.environ["SLUICEGATE_TEST_FOLDER"])
    (folder / f"held-{ctx.partition}").write_text(str(os.getpid()))
    while not (folder / "go").exists():
        time.sleep(0.01)


def store_and_hold_third(batch: list[Message], ctx: DrainContext) -> None:
    """Write the numbers of a batch into a file per lease; hold the third batch of each worker."""
    _write(batch, ctx)
    if ctx.chunk == 2:
        hold(batch, ctx)


def _write(batch: list[Message], ctx: DrainContext) -> None:
    numbers = [message.json()["n"] for message in batch]
    ctx.output_file(os.environ["SLUICEGATE_TEST_FOLDER"], ".json").write_text(json.dumps(numbers))


NOT_CALLABLE = 1
