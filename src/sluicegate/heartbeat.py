"""Heartbeats: one thread per process watches over the leases of all queues, and one per gateway extends them."""

from __future__ import annotations

import logging
import math
import os
import threading
from collections.abc import Callable
from typing import Protocol

from sluicegate.clock import elapsed_clock
from sluicegate.heartbeat_schedule import MAX_HEARTBEAT_SECONDS, MAX_SLEEP_SECONDS, RETRY_SECONDS, DueQueue, Grouped

__all__ = ["Beating", "HeartbeatScheduler", "scheduler"]

_IDLE_SECONDS = 30.0
_log = logging.getLogger("sluicegate")


class Beating(Grouped, Protocol):
    """Something that wants to be extended in time."""

    def beat(self) -> float | None:
        """Extend once; returns the seconds to the next beat, None for no more."""


class HeartbeatScheduler:
    """Calls `beat()` of every watched lease when it is due.

    The scheduler's thread sends nothing. While a gateway has beats that are due, one thread of its own calls them one
    after the other, so that a server that hangs delays the beats of no other; each runs in a copy of the context in
    which its lease was watched. A lease is not kept alive by being watched.

    Args:
        clock: seconds, monotonic; injected by tests.
    """

    def __init__(self, clock: Callable[[], float] = elapsed_clock) -> None:
        self._clock = clock
        self._agenda: DueQueue[Beating] = DueQueue()
        # Signal handlers settle leases too, so the thread that they interrupt may hold the lock already.
        lock = threading.RLock()
        self._changed = threading.Condition(lock)
        self._beat_ended = threading.Condition(lock)
        self._thread: threading.Thread | None = None
        self._sleeps_until = 0.0  # when its thread looks at what is due without being woken
        self._pid = os.getpid()

    def watch(self, lease: Beating, after_seconds: float) -> None:
        """Beat for a lease, first after so many seconds, until `unwatch`."""
        with self._changed:
            at = self._clock() + after_seconds
            self._agenda.add(lease, at)
            self._start()
            if at < self._sleeps_until:  # waking it for each message of a fast consumer would cost more than the rest
                self._changed.notify_all()

    def unwatch(self, lease: Beating) -> None:
        """Beat no more: nothing is sent for the lease after this returns.

        Waits for a beat that is under way: as a rule a round trip, and at most the 5 s that a gateway gives a beat.
        A callback of the user's that runs in the beat and takes 15 s is not waited for any longer, and neither does
        a beat wait for itself.
        """
        with self._changed:
            self._agenda.remove(lease)
            if not self._beat_ended.wait_for(lambda: not self._beaten_elsewhere(lease), MAX_HEARTBEAT_SECONDS):
                _log.warning("a heartbeat takes longer than %g s; it is not waited for", MAX_HEARTBEAT_SECONDS)

    def run_once(self) -> float | None:
        """Beat for what is due, in this thread; returns the seconds to the next beat, None when nothing is watched."""
        while True:
            with self._changed:
                groups = self._agenda.fall_due(self._clock())
                if not groups:
                    at = self._agenda.next_at()
                    return None if at is None else at - self._clock()
            for group in groups:
                self._work(group)

    def _beaten_elsewhere(self, lease: Beating) -> bool:
        watch = self._agenda.under_way(lease)
        return watch is not None and watch.by != threading.get_ident()

    def _start(self) -> None:
        if self._thread is None or not self._thread.is_alive():
            self._thread = threading.Thread(target=self._loop, name="sluicegate-heartbeat", daemon=True)
            self._thread.start()

    def _loop(self) -> None:
        while True:
            with self._changed:
                groups = self._agenda.fall_due(self._clock())
                if not groups and not self._sleep():
                    self._thread = None
                    return
            for group in groups:
                self._hand_over(group)

    def _sleep(self) -> bool:
        """Sleep until there may be something to do; False when nothing came to be watched for a long time."""
        at, now = self._agenda.next_at(), self._clock()
        if at is not None:
            self._sleeps_until = min(at, now + MAX_SLEEP_SECONDS)
            self._changed.wait(self._sleeps_until - now)
            return True
        self._sleeps_until = math.inf
        return self._changed.wait(_IDLE_SECONDS) or self._agenda.next_at() is not None

    def _hand_over(self, group: int) -> None:
        """Let a thread beat for what is due in a group; it lives no longer than that."""
        try:
            threading.Thread(target=self._work, args=(group,), name="sluicegate-beats", daemon=True).start()
        except RuntimeError as error:  # no more threads, for now or because the interpreter ends
            _log.warning("heartbeats are late: %s", error)
            self._postpone(group)

    def _work(self, group: int) -> None:
        while os.getpid() == self._pid:  # a callback may have forked: the child has its own
            with self._changed:
                begun = self._agenda.begin(group)
                if begun is None:
                    return
                watch, lease = begun
                watch.by = threading.get_ident()
            after = None
            try:
                after = watch.context.copy().run(_beat, lease)
            except BaseException:
                self._postpone(group)
                raise
            finally:
                with self._changed:
                    if self._agenda.end(watch, None if after is None else self._clock() + after):
                        self._changed.notify_all()
                    self._beat_ended.notify_all()
            del begun, lease

    def _postpone(self, group: int) -> None:
        with self._changed:
            self._agenda.postpone(group, self._clock() + RETRY_SECONDS)
            self._changed.notify_all()


def _beat(lease: Beating) -> float | None:
    try:
        return lease.beat()
    except Exception:  # noqa: BLE001  (one lease's fault must not end the beats of all others)
        _log.exception("a heartbeat failed unexpectedly and stops")
        return None


_lock = threading.RLock()
_scheduler: HeartbeatScheduler | None = None


def scheduler() -> HeartbeatScheduler:
    """The scheduler of this process; a forked child gets its own."""
    global _scheduler  # noqa: PLW0603  (one per process is the point)
    with _lock:
        if _scheduler is None:
            _scheduler = HeartbeatScheduler()
        return _scheduler


def _forget_after_fork() -> None:
    global _lock, _scheduler
    _lock, _scheduler = threading.RLock(), None


os.register_at_fork(after_in_child=_forget_after_fork)
