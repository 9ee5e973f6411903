"""What a worker did, counted."""

from __future__ import annotations

import threading
from collections import Counter
from dataclasses import dataclass
from enum import StrEnum

__all__ = ["End", "Tally", "WorkerReport"]


class End(StrEnum):
    """How the delivery of one message ended; each is a field of `WorkerReport`."""

    HANDLED = "handled"
    FAILED = "failed"
    REJECTED = "rejected"
    INVALID = "invalid"
    UNHANDLED = "unhandled"
    RELEASED = "released"
    LOST = "lost"


@dataclass(frozen=True, slots=True)
class WorkerReport:
    """What a worker did with the messages that it claimed; each message counts once.

    Attributes:
        handled: their handlers succeeded, and they were acked.
        failed: their handlers raised or returned False; they are delivered again, or were buried at their last attempt.
        rejected: their handlers raised `Reject`; they were buried.
        invalid: their payloads fit no parameter of their handlers; they were buried.
        unhandled: no handler took their types; `on_unhandled` says what became of them.
        released: the worker stopped before their handlers ended; other consumers get them, mostly uncounted.
        lost: they ended, and Redis did not accept the verdict: their lease was lost, or Redis stayed away. They are
            delivered again.
        buried: how many of all these became dead letters.
    """

    handled: int = 0
    failed: int = 0
    rejected: int = 0
    invalid: int = 0
    unhandled: int = 0
    released: int = 0
    lost: int = 0
    buried: int = 0

    @property
    def claimed(self) -> int:
        """Return the number of messages."""
        return self.handled + self.failed + self.rejected + self.invalid + self.unhandled + self.released + self.lost


class Tally:
    """Counts how deliveries end, in any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._ends: Counter[str] = Counter()

    def add(self, end: End, *, buried: bool = False) -> None:
        """Count one delivery."""
        with self._lock:
            self._ends[end.value] += 1
            if buried:
                self._ends["buried"] += 1

    def report(self) -> WorkerReport:
        """Return what was counted until now."""
        with self._lock:
            return WorkerReport(**self._ends)
