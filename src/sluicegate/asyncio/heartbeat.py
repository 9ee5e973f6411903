"""Heartbeats: one timer per event loop extends the leases of all queues."""

from __future__ import annotations

import asyncio
import logging
import os
import threading
from collections.abc import Callable
from functools import partial
from typing import Protocol
from weakref import WeakKeyDictionary, ref

from sluicegate.clock import elapsed_clock
from sluicegate.heartbeat_schedule import (
    MAX_HEARTBEAT_SECONDS,
    MAX_SLEEP_SECONDS,
    RETRY_SECONDS,
    DueQueue,
    Grouped,
    Watch,
)

__all__ = ["Beating", "HeartbeatScheduler", "scheduler"]

_log = logging.getLogger("sluicegate")


class Beating(Grouped, Protocol):
    """Something that wants to be extended in time."""

    async def beat(self) -> float | None:
        """Extend once; returns the seconds to the next beat, None for no more."""


class HeartbeatScheduler:
    """Calls `beat()` of every watched lease of one event loop when it is due.

    The timer itself sends nothing. While a gateway has beats that are due, one task of its own calls them one after
    the other, so that a server that hangs delays the beats of no other; each runs in a copy of the context in which
    its lease was watched. A lease is not kept alive by being watched.

    Args:
        clock: seconds, monotonic; injected by tests.
    """

    def __init__(self, clock: Callable[[], float] = elapsed_clock) -> None:
        self._clock = clock
        self._agenda: DueQueue[Beating] = DueQueue()
        self._tasks: set[asyncio.Task[float | None]] = set()
        # The loop holds its timers; held here as well they would hold the loop.
        self._timer: ref[asyncio.TimerHandle] | None = None
        self._timer_at = 0.0

    def watch(self, lease: Beating, after_seconds: float) -> None:
        """Beat for a lease, first after so many seconds, until `unwatch`."""
        self._agenda.add(lease, self._clock() + after_seconds)
        self._start()

    async def unwatch(self, lease: Beating) -> None:
        """Beat no more: nothing is sent for the lease after this returns.

        Waits for a beat that is under way: as a rule a round trip, and at most the 5 s that a gateway gives a beat.
        A callback of the user's that runs in the beat and takes 15 s is not waited for any longer, and neither does
        a beat wait for itself.
        """
        self._agenda.remove(lease)
        self._start()
        watch = self._agenda.under_way(lease)
        if watch is not None and isinstance(watch.by, asyncio.Task) and watch.by is not asyncio.current_task():
            _, late = await asyncio.wait({watch.by}, timeout=MAX_HEARTBEAT_SECONDS)
            if late:
                _log.warning("a heartbeat takes longer than %g s; it is not waited for", MAX_HEARTBEAT_SECONDS)

    async def run_once(self) -> float | None:
        """Beat for what is due and wait for it; returns the seconds to the next beat, None when nothing is watched."""
        while True:
            for group in self._agenda.fall_due(self._clock()):
                self._work(group)
            if not self._tasks:
                at = self._agenda.next_at()
                return None if at is None else at - self._clock()
            await asyncio.wait(set(self._tasks))

    def _start(self) -> None:
        """Have the timer ring when the next beat falls due."""
        at = self._agenda.next_at()
        timer = self._timer() if self._timer is not None else None
        if timer is not None:
            if at is not None and self._timer_at <= at:
                return
            timer.cancel()
            self._timer = None
        if at is not None:
            wait = min(max(0.0, at - self._clock()), MAX_SLEEP_SECONDS)
            self._timer_at = self._clock() + wait
            self._timer = ref(asyncio.get_running_loop().call_later(wait, self._ring))

    def _ring(self) -> None:
        self._timer = None
        for group in self._agenda.fall_due(self._clock()):
            self._work(group)
        self._start()

    def _work(self, group: int) -> None:
        """Begin the next beat of a gateway; each goes on with the next when it ends."""
        begun = self._agenda.begin(group)
        if begun is None:
            return
        watch, lease = begun
        task = asyncio.get_running_loop().create_task(
            _beat(lease), name="sluicegate-beat", context=watch.context.copy()
        )
        watch.by = task
        self._tasks.add(task)
        task.add_done_callback(partial(self._ended, watch))

    def _ended(self, watch: Watch[Beating], task: asyncio.Task[float | None]) -> None:
        self._tasks.discard(task)
        if task.cancelled():  # by whoever ends all tasks, which a further one would escape
            self._agenda.end(watch, self._clock() + RETRY_SECONDS)
            self._agenda.postpone(watch.group, self._clock() + RETRY_SECONDS)
        else:
            after = task.result() if task.exception() is None else None
            self._agenda.end(watch, None if after is None else self._clock() + after)
            self._work(watch.group)
        self._start()


async def _beat(lease: Beating) -> float | None:
    try:
        return await lease.beat()
    except Exception:  # noqa: BLE001  (one lease's fault must not end the beats of all others)
        _log.exception("a heartbeat failed unexpectedly and stops")
        return None


_lock = threading.RLock()
_schedulers: WeakKeyDictionary[asyncio.AbstractEventLoop, HeartbeatScheduler] = WeakKeyDictionary()


def scheduler() -> HeartbeatScheduler:
    """The scheduler of the running event loop."""
    loop = asyncio.get_running_loop()
    with _lock:
        found = _schedulers.get(loop)
        if found is None:
            for closed in [other for other in _schedulers if other.is_closed()]:
                del _schedulers[closed]
            found = _schedulers[loop] = HeartbeatScheduler()
        return found


def _forget_after_fork() -> None:
    global _lock, _schedulers
    _lock, _schedulers = threading.RLock(), WeakKeyDictionary()


os.register_at_fork(after_in_child=_forget_after_fork)
