"""The threads that send heartbeats; `sluicegate.asyncio.heartbeat_workers` has a timer and tasks."""

from __future__ import annotations

import logging
import math
import os
import threading
from collections.abc import Callable
from typing import Generic, TypeVar

from sluicegate.heartbeat_schedule import MAX_SLEEP_SECONDS, RETRY_SECONDS, DueQueue, Grouped, Watch

__all__ = ["HeartbeatWorkers", "Schedulers"]

T = TypeVar("T", bound=Grouped)
S = TypeVar("S")
_IDLE_SECONDS = 30.0
_log = logging.getLogger("sluicegate")


class HeartbeatWorkers(Generic[T]):
    """One thread that sleeps until heartbeats are due, and a thread for each gateway whose heartbeats are.

    Args:
        clock: of the heartbeats that are due.
        due: the heartbeats to come.
        work: sends the due heartbeats of one gateway.
    """

    def __init__(self, clock: Callable[[], float], due: DueQueue[T], work: Callable[[int], None]) -> None:
        # Signal handlers settle leases too, so the thread that they interrupt may hold the lock already.
        self.lock = threading.RLock()
        self._changed = threading.Condition(self.lock)
        self._beat_ended = threading.Condition(self.lock)
        self._clock = clock
        self._due = due
        self._work = work
        self._thread: threading.Thread | None = None
        self._sleeps_until = 0.0  # when the thread checks what is due, unless something wakes it

    def wake(self, at: float) -> None:
        """Be there when a heartbeat falls due at that time; the caller holds the lock."""
        if self._thread is None or not self._thread.is_alive():
            self._thread = threading.Thread(target=self._run, name="sluicegate-heartbeat", daemon=True)
            self._thread.start()
        if at < self._sleeps_until:  # waking it for each message of a fast consumer would cost more than the rest
            self._changed.notify_all()

    def has_ended(self, lease: T, seconds: float) -> bool:
        """Return whether no other thread sends a heartbeat for a lease, after waiting at most so long for its end."""
        with self._beat_ended:
            return not self._is_sent_elsewhere(lease) or self._beat_ended.wait_for(
                lambda: not self._is_sent_elsewhere(lease), seconds
            )

    def run(self, watch: Watch[T], beat: Callable[[T], float | None], lease: T) -> float | None:
        """Send one heartbeat in the context of its lease."""
        watch.by = threading.get_ident()
        return watch.context.copy().run(beat, lease)

    def report_end(self, again_at: float | None) -> None:
        """Note that a heartbeat ended and when the next one is due, if any; the caller holds the lock."""
        self._beat_ended.notify_all()
        if again_at is not None:
            self.wake(again_at)

    def _is_sent_elsewhere(self, lease: T) -> bool:
        watch = self._due.under_way(lease)
        return watch is not None and watch.by != threading.get_ident()

    def _run(self) -> None:
        while True:
            with self._changed:
                groups = self._due.fall_due(self._clock())
                if not groups and not self._sleep():
                    self._thread = None
                    return
            for group in groups:
                self._hand_over(group)

    def _sleep(self) -> bool:
        """Sleep until there may be something to do; False when nothing was watched for a long time."""
        at, now = self._due.next_at(), self._clock()
        if at is not None:
            self._sleeps_until = min(at, now + MAX_SLEEP_SECONDS)
            self._changed.wait(self._sleeps_until - now)
            return True
        self._sleeps_until = math.inf
        return self._changed.wait(_IDLE_SECONDS) or self._due.next_at() is not None

    def _hand_over(self, group: int) -> None:
        """Let a new thread send the due heartbeats of a gateway; it ends when none is left."""
        try:
            threading.Thread(target=self._work, args=(group,), name="sluicegate-beats", daemon=True).start()
        except RuntimeError as error:  # no more threads, for now or because the interpreter ends
            _log.warning("heartbeats are late: %s", error)
            with self.lock:
                self._due.postpone(group, self._clock() + RETRY_SECONDS)


class Schedulers(Generic[S]):
    """One scheduler per process; a forked child makes its own.

    Args:
        make: makes one.
    """

    def __init__(self, make: Callable[[], S]) -> None:
        self._make = make
        self._lock = threading.RLock()
        self._found: S | None = None
        os.register_at_fork(after_in_child=self._forget)

    def __call__(self) -> S:
        """Return the scheduler of this process."""
        with self._lock:
            if self._found is None:
                self._found = self._make()
            return self._found

    def _forget(self) -> None:
        self._lock, self._found = threading.RLock(), None
