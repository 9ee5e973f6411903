"""One run of a worker: how many messages it may still claim, what it holds, and why and when it ends. No I/O."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Generic, Protocol, TypeVar

from sluicegate.clock import elapsed_clock
from sluicegate.handling.report import End, Tally, WorkerReport

__all__ = ["Run"]


class _Leased(Protocol):
    @property
    def unsettled(self) -> list[int]: ...


L = TypeVar("L", bound=_Leased)


class Run(Generic[L]):
    """The state of one run, which its slots and those who stop it share. It can be used in any thread.

    Args:
        owner: the thread or task that runs it, by `runtime.current_owner`; 0 for one in the background.
        stopping: whether the queue is stopping.
        timeout_seconds: how long handlers may take once the run is stopping.
        limit: most messages to claim; None for no bound.
        clock: seconds, monotonic; injected by tests.

    Attributes:
        error: what ended the run, if it did not end as asked.
        is_dry: whether a bounded run has found nothing to claim, so that it ends.
        has_ended: whether nothing of it runs any more, except handlers that did not end in time.
        is_clean: whether every handler ended in time.
        wait_seconds: how long each claim waits for a message; a bounded run waits for its first one only.
    """

    def __init__(
        self,
        owner: int,
        stopping: Callable[[], bool],
        timeout_seconds: float,
        limit: int | None = None,
        *,
        wait_seconds: float = 0,
        clock: Callable[[], float] = elapsed_clock,
    ) -> None:
        self.owner = owner
        self.error: BaseException | None = None
        self.is_dry = False
        self.has_ended = False
        self.is_clean = True
        self.wait_seconds = wait_seconds
        self._stopping = stopping
        self._timeout_seconds = timeout_seconds
        self._stopped_at: float | None = None
        self._left = limit
        self._clock = clock
        self._beat_at = clock()
        self._held: dict[int, L] = {}
        self._tally = Tally()
        self._lock = threading.Lock()

    @property
    def is_bounded(self) -> bool:
        """Return whether the run ends after some messages, or when it finds none."""
        return self._left is not None

    def most_at_once(self, concurrency: int) -> int:
        """Return how many slots the run needs."""
        return concurrency if self._left is None else min(concurrency, self._left)

    @property
    def report(self) -> WorkerReport:
        """Return what the run did until now."""
        return self._tally.report()

    def stop(self, timeout_seconds: float | None = None) -> None:
        """Claim no more.

        Args:
            timeout_seconds: how long handlers may take from now on; None leaves it as it was.
        """
        with self._lock:
            if self._stopped_at is None or timeout_seconds is not None:
                self._stopped_at = self._clock()
            if timeout_seconds is not None:
                self._timeout_seconds = timeout_seconds

    def stopping(self) -> bool:
        """Return whether the run claims no more: it was stopped, or the queue was closed or interrupted."""
        if self._stopped_at is None and self._stopping():
            self.stop()
        return self._stopped_at is not None

    def beat(self) -> None:
        """Note that the loop of the worker runs."""
        self._beat_at = self._clock()

    def silent_seconds(self) -> float:
        """Return how long ago the loop of the worker last ran."""
        return max(0.0, self._clock() - self._beat_at)

    def left_seconds(self) -> float:
        """Return how long the handlers of a stopped run may still take."""
        stopped_at = self._stopped_at if self._stopped_at is not None else self._clock()
        return stopped_at + self._timeout_seconds - self._clock()

    def fail(self, error: BaseException) -> None:
        """End the run because of an error; the first one counts."""
        with self._lock:
            self.error = self.error or error
        self.stop()

    def may_claim(self) -> bool:
        """Return whether a slot may claim another message, which then counts against the limit."""
        if self.stopping() or self.is_dry:
            return False
        with self._lock:
            if self._left is None:
                return True
            if self._left <= 0:
                return False
            self._left -= 1
            return True

    def finds_nothing(self) -> None:
        """Let a bounded run end: nothing is claimable."""
        self.is_dry = self.is_bounded

    def hold(self, lease: L) -> None:
        """Note that a slot works on a lease."""
        with self._lock:
            self._held[id(lease)] = lease
            if self._left is not None:
                self.wait_seconds = 0

    def end(self, lease: L, how: End, *, buried: bool = False) -> None:
        """Count how the delivery of a lease ended, unless it was given up."""
        with self._lock:
            is_ours = self._held.pop(id(lease), None) is not None
        if is_ours:
            self._count(how, buried)

    def give_up(self) -> list[L]:
        """Return the leases whose handlers have not ended, and count them as released, whatever these do later."""
        with self._lock:
            given_up = [lease for lease in self._held.values() if lease.unsettled]
            for lease in given_up:
                del self._held[id(lease)]
        for _ in given_up:
            self._count(End.RELEASED)
        return given_up

    def _count(self, how: End, buried: bool = False) -> None:
        if how is End.RELEASED:
            self.is_clean = False
        self._tally.add(how, buried=buried)
