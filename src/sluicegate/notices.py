"""One thread per queue object waits for notifications, on one connection, for any number of waiters.

Written by hand; `sluicegate.asyncio.notices` has a task.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from weakref import WeakSet

from sluicegate._notices_base import LINGER_SECONDS, POLL_SECONDS, READERS, REREAD_SECONDS, RETRY_SECONDS, Board
from sluicegate.clock import elapsed_clock
from sluicegate.core.keys import QueueKeys
from sluicegate.core.transitions.batches import Ended, ended_call
from sluicegate.errors import RedisAccessError
from sluicegate.gateway import Gateway

__all__ = ["Notices", "Watch"]

_SLICE_SECONDS = 0.5  # between looks whether a waiter's queue object is stopping
_log = logging.getLogger("sluicegate")


class Watch:
    """Somebody waits for the end of one batch or job.

    Attributes:
        member: what is waited for, as notifications name it.
    """

    def __init__(self, member: bytes) -> None:
        self.member = member
        self._event = threading.Event()

    def wake(self) -> None:
        """Have the waiter look at the state itself."""
        self._event.set()

    def wait(self, seconds: float, stopping: Callable[[], bool] = lambda: False) -> None:
        """Sleep until the state may have changed, time is up, or the queue object is stopping."""
        end = elapsed_clock() + seconds
        while (left := end - elapsed_clock()) > 0 and not stopping():
            if self._event.wait(min(left, _SLICE_SECONDS)):
                break
        self._event.clear()


class Notices:
    """Wakes those who wait for the end of batches and jobs of one queue.

    The thread starts with the first waiter, is a daemon, and ends two seconds after the last one. A lost notification
    delays a waiter by ten seconds at most.

    Args:
        gateway: to the queue.
        keys: of the queue.
        stopping: whether the queue object is stopping, so that waits end.
    """

    def __init__(self, gateway: Gateway, keys: QueueKeys, stopping: Callable[[], bool] = lambda: False) -> None:
        self._gateway = gateway
        self._keys = keys
        self._stopping = stopping
        self._may_follow = True
        self._reset()
        _every_one.add(self)

    def _reset(self) -> None:
        self._lock = threading.RLock()
        self._board: Board[Watch] = Board()
        self._ready = threading.Event()
        self._thread: threading.Thread | None = None
        self._idle_since = 0.0
        self._reading = threading.BoundedSemaphore(READERS)

    @property
    def reading(self) -> threading.BoundedSemaphore:
        """Return what a waiter reads the state inside of."""
        return self._reading

    @contextmanager
    def watching(self, member: bytes) -> Iterator[Watch]:
        """Wait for a member inside the block: what ends after the block has begun wakes the waiter.

        Read the state inside the block, before the first wait.
        """
        watch = Watch(member)
        with self._lock:
            self._board.add(watch)
            if self._thread is None:
                self._ready = threading.Event()
                self._thread = threading.Thread(target=self._run, name="sluicegate-notices", daemon=True)
                self._thread.start()
            ready = self._ready
        try:
            ready.wait(REREAD_SECONDS)
            yield watch
        finally:
            with self._lock:
                self._board.remove(watch)
                self._idle_since = elapsed_clock()

    def _run(self) -> None:
        me = threading.current_thread()
        look_at = 0.0
        while not self._ended(me):
            try:
                look_at = self._step(look_at)
            except Exception as error:  # noqa: BLE001  (a waiter meets it itself, in its own call)
                _log.warning("waiting for notifications ended early: %s", type(error).__name__)
                look_at = 0.0
                with self._lock:
                    self._board.wake_all()
                self._ready.set()
                threading.Event().wait(RETRY_SECONDS)

    def _step(self, look_at: float = 0.0) -> float:
        """Look at what has ended if it is time to, else follow the notifications until then.

        Returns:
            When to look again, by `elapsed_clock`.
        """
        now = elapsed_clock()
        if now >= look_at:
            with self._lock:
                members = self._board.members()
            ended: Ended = self._gateway.execute(ended_call(self._keys, members), retry=False)
            with self._lock:
                self._board.looked(ended)
            self._ready.set()
            return now + (REREAD_SECONDS if self._follow is not None else POLL_SECONDS)
        follow, position = self._follow, self._board.position
        if follow is None or position is None:
            threading.Event().wait(look_at - now)
            return look_at
        try:
            news = follow(self._keys.tracking_news, position, look_at - now, self._is_idle)
        except RedisAccessError as error:
            self._may_follow = False
            _log.warning("waiters look every %s s: %s", POLL_SECONDS, error)
            return 0.0
        with self._lock:
            return 0.0 if self._board.heard(news) else look_at

    @property
    def _follow(self) -> Callable[..., Any] | None:
        return getattr(self._gateway, "follow", None) if self._may_follow else None

    def _is_idle(self) -> bool:
        idle = not self._board and elapsed_clock() - self._idle_since > LINGER_SECONDS
        return idle or self._stopping()

    def _ended(self, thread: threading.Thread) -> bool:
        """Return whether the thread has to end, because there is no waiter left."""
        with self._lock:
            if self._thread is thread and self._is_idle():
                self._thread = None
                self._ready.set()  # no look follows, so a waiter for the first one must not wait
            return self._thread is not thread


_every_one: WeakSet[Notices] = WeakSet()


def _after_fork() -> None:
    for notices in list(_every_one):
        notices._reset()


os.register_at_fork(after_in_child=_after_fork)
