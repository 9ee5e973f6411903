"""Work that the live tests let an orchestrator do. Each message says in which folder its handling is recorded."""

from __future__ import annotations

import json
import os
import uuid
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from sluicegate import Message
from tests.support.waiting import wait_until

HELD_SECONDS = 300.0


def messages(folder: str | Path, count: int, start: int = 0) -> list[dict[str, Any]]:
    """Return numbered messages."""
    return [{"n": number, "folder": str(folder)} for number in range(start, start + count)]


def record(batch: Iterable[Message]) -> None:
    """Write the numbers of a batch into a file of its own, once they are all handled."""
    payloads = [message.json() for message in batch]
    record_numbers(payloads[0]["folder"], [payload["n"] for payload in payloads])


def record_numbers(folder: str | Path, numbers: list[int]) -> None:
    """Write numbers into a file of its own, which appears as a whole."""
    path = Path(folder) / f"batch-{uuid.uuid4().hex}"
    path.write_text(json.dumps(numbers))
    path.rename(path.with_suffix(".json"))


def recorded(folder: Path) -> list[list[int]]:
    """Return the batches that were handled."""
    return sorted(json.loads(path.read_text()) for path in folder.glob("batch-*.json"))


def numbers(folder: Path) -> list[int]:
    """Return the numbers that were handled, as often as they were."""
    return sorted(number for batch in recorded(folder) for number in batch)


def hold(folder: str | Path) -> None:
    """Report that this place is reached, and wait until the test lets the process continue or kills it."""
    reached = Path(folder) / "held.new"
    reached.write_text(str(os.getpid()))
    reached.rename(Path(folder) / "held")
    wait_until((Path(folder) / "go").exists, "the test lets the process continue", HELD_SECONDS)
