"""The timer and the tasks that send heartbeats in an event loop; `sluicegate.heartbeat_workers` has threads.

Written by hand, because a loop calls back when a heartbeat is due, where a thread has to sleep until then.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable, Coroutine
from typing import Any, Generic, TypeVar
from weakref import WeakKeyDictionary, ref

from sluicegate.heartbeat_schedule import MAX_SLEEP_SECONDS, DueQueue, Grouped, Watch

__all__ = ["HeartbeatWorkers", "Schedulers"]

T = TypeVar("T", bound=Grouped)
S = TypeVar("S")


class HeartbeatWorkers(Generic[T]):
    """One timer per event loop, and a task for each gateway with heartbeats that are due.

    Args:
        clock: of the heartbeats that are due.
        due: the heartbeats to come.
        work: sends the due heartbeats of one gateway.
    """

    def __init__(
        self, clock: Callable[[], float], due: DueQueue[T], work: Callable[[int], Coroutine[Any, Any, None]]
    ) -> None:
        self.lock = threading.RLock()  # never contended, since a loop is one thread
        self.tasks: set[asyncio.Task[None]] = set()
        self._clock = clock
        self._due = due
        self._work = work
        # The loop holds its timers. A second reference here would hold the loop.
        self._timer: ref[asyncio.TimerHandle] | None = None
        self._timer_at = 0.0

    def wake(self, at: float) -> None:
        """Be there when a heartbeat falls due at that time."""
        del at
        self._set_timer()

    async def has_ended(self, lease: T, seconds: float) -> bool:
        """Return whether no other task sends a heartbeat for a lease, after waiting at most so long for its end."""
        self._set_timer()
        watch = self._due.under_way(lease)
        if watch is None or not isinstance(watch.by, asyncio.Task) or watch.by is asyncio.current_task():
            return True
        _, late = await asyncio.wait({watch.by}, timeout=seconds)
        return not late

    async def run(
        self, watch: Watch[T], beat: Callable[[T], Coroutine[Any, Any, float | None]], lease: T
    ) -> float | None:
        """Send one heartbeat in a task of its own, which has the context of its lease."""
        context = watch.context.copy()
        task = asyncio.get_running_loop().create_task(beat(lease), name="sluicegate-beat", context=context)
        watch.by = task
        try:
            return await task
        except (KeyboardInterrupt, SystemExit):  # the task has raised it out of the event loop already
            return None

    def report_end(self, again_at: float | None) -> None:
        """Note that a heartbeat ended and when the next one is due, if any."""
        del again_at
        self._set_timer()

    def _set_timer(self) -> None:
        """Have the timer call back when the next heartbeat falls due."""
        at = self._due.next_at()
        timer = self._timer() if self._timer is not None else None
        if timer is not None:
            if at is not None and self._timer_at <= at:
                return
            timer.cancel()
            self._timer = None
        if at is not None:
            wait = min(max(0.0, at - self._clock()), MAX_SLEEP_SECONDS)
            self._timer_at = self._clock() + wait
            self._timer = ref(asyncio.get_running_loop().call_later(wait, self._call_back))

    def _call_back(self) -> None:
        self._timer = None
        for group in self._due.fall_due(self._clock()):
            task = asyncio.get_running_loop().create_task(self._work(group), name="sluicegate-beats")
            self.tasks.add(task)
            task.add_done_callback(self.tasks.discard)
        self._set_timer()


class Schedulers(Generic[S]):
    """One scheduler per event loop; a forked child makes its own.

    Args:
        make: makes one.
    """

    def __init__(self, make: Callable[[], S]) -> None:
        self._make = make
        self._lock = threading.RLock()
        self._found: WeakKeyDictionary[asyncio.AbstractEventLoop, S] = WeakKeyDictionary()
        os.register_at_fork(after_in_child=self._forget)

    def __call__(self) -> S:
        """Return the scheduler of the running event loop."""
        loop = asyncio.get_running_loop()
        with self._lock:
            found = self._found.get(loop)
            if found is None:
                for closed in [other for other in self._found if other.is_closed()]:
                    del self._found[closed]
                found = self._found[loop] = self._make()
            return found

    def _forget(self) -> None:
        self._lock, self._found = threading.RLock(), WeakKeyDictionary()
