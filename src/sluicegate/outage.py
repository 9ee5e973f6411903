"""An outage of Redis as one queue object meets it: calls that follow one another share one retry budget."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from sluicegate.clock import elapsed_clock

__all__ = ["Outage"]

_RECENT_SECONDS = 5.0


class Outage:
    """Remembers since when Redis has been away, so that several calls do not wait for it one after the other.

    A call that fails after its retries notes when it began, and the next call that succeeds forgets that. Inside a
    `shared` block, calls get what is left of the budget of that first call: usually a single attempt. Heartbeats note
    nothing, because no call waits for them.

    Args:
        clock: seconds, monotonic; injected by tests.
    """

    __slots__ = ("_blocks", "_clock", "_failed_at", "_lock", "since")

    def __init__(self, clock: Callable[[], float] = elapsed_clock) -> None:
        self.since: float | None = None
        self._failed_at = -math.inf
        self._blocks = 0
        self._lock = threading.Lock()  # threads may share a queue object
        self._clock = clock

    @contextmanager
    def shared(self) -> Iterator[None]:
        """Let the calls of this block share one budget, with all other such blocks of the queue object."""
        with self._lock:
            self._blocks += 1
        try:
            yield
        finally:
            with self._lock:
                self._blocks -= 1

    def left_of(self, budget_seconds: float) -> float | None:
        """Return how many seconds of a budget are left for the next call; None for all of it."""
        since = self.since
        if since is None or not self._blocks:
            return None
        return max(0.0, since + budget_seconds - self._clock())

    def now(self) -> float:
        """Return the time at which a call begins, for `note`."""
        return self._clock()

    def note(self, begun: float) -> None:
        """Note that a call that began at that time failed, because Redis stayed away."""
        self._failed_at = self._clock()
        if self.since is None:
            self.since = begun

    def end(self) -> None:
        """Note that a call succeeded."""
        self.since = None

    @property
    def is_recent(self) -> bool:
        """Return whether the last call failed, less than five seconds ago: another one would hardly succeed."""
        return self.since is not None and self._clock() - self._failed_at < _RECENT_SECONDS
