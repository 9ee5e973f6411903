"""Extends the leases of all queues when they are due."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from typing import Protocol

from sluicegate.asyncio.heartbeat_workers import HeartbeatWorkers, Schedulers
from sluicegate.clock import elapsed_clock
from sluicegate.heartbeat_schedule import MAX_HEARTBEAT_SECONDS, RETRY_SECONDS, DueQueue, Grouped

__all__ = ["Beating", "HeartbeatScheduler", "scheduler"]

_log = logging.getLogger("sluicegate")


class Beating(Grouped, Protocol):
    """Something that has to be extended in time."""

    async def beat(self) -> float | None:
        """Extend it once; returns the seconds to the next heartbeat, None for no more."""


class HeartbeatScheduler:
    """Calls `beat()` of every watched lease when it is due.

    The timer itself sends nothing. While heartbeats of a gateway are due, one worker sends them one after the other, so
    that a server that hangs delays the heartbeats of no other. Each runs in a copy of the context in which its lease
    was watched. Watching a lease does not keep it alive.

    Args:
        clock: seconds, monotonic; injected by tests.
    """

    def __init__(self, clock: Callable[[], float] = elapsed_clock) -> None:
        self._clock = clock
        self._due: DueQueue[Beating] = DueQueue()
        self._workers = HeartbeatWorkers(clock, self._due, self._work)
        self._lock = self._workers.lock
        self._pid = os.getpid()

    def watch(self, lease: Beating, after_seconds: float) -> None:
        """Send heartbeats for a lease until `unwatch`, the first after this many seconds."""
        with self._lock:
            at = self._clock() + after_seconds
            self._due.add(lease, at)
            self._workers.wake(at)

    async def unwatch(self, lease: Beating, *, wait: bool = True) -> None:
        """Send no more heartbeats for a lease: nothing is sent for it after this returns.

        Waits for a heartbeat that is under way: usually for one round trip, and at most for the 5 s that a gateway
        gives a heartbeat. It stops waiting for a user's callback that runs in the heartbeat for 15 s. A heartbeat does
        not wait for itself.

        Args:
            lease: the lease.
            wait: whether to wait for a heartbeat that is under way.
        """
        with self._lock:
            self._due.remove(lease)
        if wait and not await self._workers.has_ended(lease, MAX_HEARTBEAT_SECONDS):
            _log.warning("a heartbeat takes longer than %g s; it is not waited for", MAX_HEARTBEAT_SECONDS)

    async def run_once(self) -> float | None:
        """Send the heartbeats that are due; returns the seconds to the next one, None when nothing is watched."""
        while True:
            with self._lock:
                groups = self._due.fall_due(self._clock())
                if not groups:
                    at = self._due.next_at()
                    return None if at is None else at - self._clock()
            for group in groups:
                await self._work(group)

    async def _work(self, group: int) -> None:
        """Send the due heartbeats of one gateway, one after the other."""
        while os.getpid() == self._pid:  # a callback may have forked: the child sends none
            with self._lock:
                begun = self._due.begin(group)
            if begun is None:
                return
            watch, lease = begun
            again_after: float | None = None
            try:
                again_after = await self._workers.run(watch, _beat, lease)
            except BaseException:  # the worker ends, so that others have to send what is left
                again_after = RETRY_SECONDS
                with self._lock:
                    self._due.postpone(group, self._clock() + RETRY_SECONDS)
                raise
            finally:
                with self._lock:
                    again_at = None if again_after is None else self._clock() + again_after
                    self._due.end(watch, again_at)
                    self._workers.report_end(again_at)
            del begun, lease  # a lease that nobody else holds has to go


async def _beat(lease: Beating) -> float | None:
    try:
        return await lease.beat()
    except Exception:  # noqa: BLE001  (one lease's failure must not end the heartbeats of all others)
        _log.exception("a heartbeat failed unexpectedly and stops")
        return None


scheduler: Schedulers[HeartbeatScheduler] = Schedulers(HeartbeatScheduler)
"""Returns the scheduler of this process, or of the running event loop; a forked child gets its own."""
