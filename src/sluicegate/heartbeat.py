"""Heartbeats: one thread per process extends the leases of all queues."""

from __future__ import annotations

import heapq
import itertools
import logging
import os
import threading
from collections.abc import Callable
from typing import Protocol

from sluicegate.gateway import elapsed_clock

__all__ = ["Beating", "HeartbeatScheduler", "scheduler"]

_IDLE_SECONDS = 30.0
_log = logging.getLogger("sluicegate")


class Beating(Protocol):
    """Something that wants to be extended in time."""

    def beat(self) -> float | None:
        """Extend once; returns the seconds to the next beat, None for no more."""


class HeartbeatScheduler:
    """Calls `beat()` of every watched lease when it is due.

    Args:
        clock: seconds, monotonic; injected by tests.
    """

    def __init__(self, clock: Callable[[], float] = elapsed_clock) -> None:
        self._clock = clock
        # A heap of (time, number, id of a lease). It outlives what it names: an ended lease must not be kept in memory,
        # with all its messages, until its beat would have been due.
        self._due: list[tuple[float, int, int]] = []
        self._beating: list[Beating] = []
        self._watched: dict[int, tuple[int, Beating]] = {}  # id of a lease -> number of its live entry in the heap
        self._order = itertools.count()
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None
        self._pid = os.getpid()

    def watch(self, lease: Beating, after_seconds: float) -> None:
        """Beat for a lease, first after so many seconds, until `unwatch`."""
        with self._changed:
            self._push(lease, after_seconds)
            self._start()
            self._changed.notify_all()

    def unwatch(self, lease: Beating) -> None:
        """No beat begins or goes on after this returns."""
        with self._changed:
            self._watched.pop(id(lease), None)
            self._changed.wait_for(lambda: all(other is not lease for other in self._beating))

    def run_once(self) -> float | None:
        """Beat for what is due; returns the seconds to the next beat, None when nothing is watched."""
        while True:
            with self._changed:
                while self._due and not self._is_live(*self._due[0][1:]):
                    heapq.heappop(self._due)
                if not self._due:
                    return None
                wait = self._due[0][0] - self._clock()
                if wait > 0:
                    return wait
                _, number, key = heapq.heappop(self._due)
                lease = self._watched[key][1]
                self._beating.append(lease)
            after = self._beat(lease)
            with self._changed:
                self._beating.remove(lease)
                self._changed.notify_all()
                if not self._is_live(number, key):
                    continue
                if after is None:
                    del self._watched[key]
                else:
                    self._push(lease, after)

    def _push(self, lease: Beating, after_seconds: float) -> None:
        number = next(self._order)
        self._watched[id(lease)] = (number, lease)
        heapq.heappush(self._due, (self._clock() + after_seconds, number, id(lease)))

    def _is_live(self, number: int, key: int) -> bool:
        return key in self._watched and self._watched[key][0] == number

    @staticmethod
    def _beat(lease: Beating) -> float | None:
        try:
            return lease.beat()
        except Exception:  # noqa: BLE001  (one lease's fault must not end the beats of all others)
            _log.exception("a heartbeat failed unexpectedly and stops")
            return None

    def _start(self) -> None:
        if self._thread is None or not self._thread.is_alive():
            self._thread = threading.Thread(target=self._loop, name="sluicegate-heartbeat", daemon=True)
            self._thread.start()

    def _loop(self) -> None:
        while True:
            self.run_once()
            with self._changed:
                if self._due:
                    self._changed.wait(timeout=max(0.0, self._due[0][0] - self._clock()))
                elif not self._changed.wait(timeout=_IDLE_SECONDS) and not self._due:
                    self._thread = None
                    return


_lock = threading.Lock()
_scheduler: HeartbeatScheduler | None = None


def scheduler() -> HeartbeatScheduler:
    """The scheduler of this process; a forked child gets its own."""
    global _scheduler  # noqa: PLW0603  (one per process is the point)
    with _lock:
        if _scheduler is None or _scheduler._pid != os.getpid():
            _scheduler = HeartbeatScheduler()
        return _scheduler


def _forget_after_fork() -> None:
    global _lock, _scheduler
    _lock, _scheduler = threading.Lock(), None


os.register_at_fork(after_in_child=_forget_after_fork)
