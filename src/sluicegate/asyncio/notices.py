"""One task per queue object and event loop waits for notifications, on one connection, for any number of waiters.

Written by hand; `sluicegate.notices` has a thread.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any
from weakref import WeakKeyDictionary

from sluicegate._notices_base import POLL_SECONDS, READERS, REREAD_SECONDS, RETRY_SECONDS, Board
from sluicegate.asyncio.gateway import Gateway
from sluicegate.clock import elapsed_clock
from sluicegate.core.keys import QueueKeys
from sluicegate.core.transitions.batches import Ended, ended_call
from sluicegate.errors import RedisAccessError

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
        self._event = asyncio.Event()

    def wake(self) -> None:
        """Have the waiter look at the state itself."""
        self._event.set()

    async def wait(self, seconds: float, stopping: Callable[[], bool] = lambda: False) -> None:
        """Sleep until the state may have changed, time is up, or the queue object is stopping."""
        end = elapsed_clock() + seconds
        while (left := end - elapsed_clock()) > 0 and not stopping():
            with suppress(TimeoutError):
                await asyncio.wait_for(self._event.wait(), min(left, _SLICE_SECONDS))
                break
        self._event.clear()


class _Following:
    """The waiters of one event loop, and the task that follows the notifications for them."""

    def __init__(self) -> None:
        self.board: Board[Watch] = Board()
        self.ready = asyncio.Event()
        self.task: asyncio.Task[None] | None = None
        self.reading = asyncio.Semaphore(READERS)


class Notices:
    """Wakes those who wait for the end of batches and jobs of one queue.

    The task starts with the first waiter of an event loop, and ends with the last. A lost notification delays a waiter
    by ten seconds at most.

    Args:
        gateway: to the queue.
        keys: of the queue.
        stopping: whether the queue object is stopping; its waiters end by themselves then.
    """

    def __init__(self, gateway: Gateway, keys: QueueKeys, stopping: Callable[[], bool] = lambda: False) -> None:
        del stopping
        self._gateway = gateway
        self._keys = keys
        self._may_follow = True
        self._loops: WeakKeyDictionary[asyncio.AbstractEventLoop, _Following] = WeakKeyDictionary()

    @property
    def reading(self) -> asyncio.Semaphore:
        """Return what a waiter reads the state inside of."""
        return self._following().reading

    def _following(self) -> _Following:
        return self._loops.setdefault(asyncio.get_running_loop(), _Following())

    @asynccontextmanager
    async def watching(self, member: bytes) -> AsyncIterator[Watch]:
        """Wait for a member inside the block: what ends after the block has begun wakes the waiter.

        Read the state inside the block, before the first wait.
        """
        loop = asyncio.get_running_loop()
        following = self._following()
        watch = Watch(member)
        following.board.add(watch)
        if following.task is None:
            following.ready = asyncio.Event()
            following.task = loop.create_task(self._run(following), name="sluicegate-notices")
        try:
            with suppress(TimeoutError):
                await asyncio.wait_for(following.ready.wait(), REREAD_SECONDS)
            yield watch
        finally:
            following.board.remove(watch)
            if not following.board and following.task is not None:
                following.task.cancel()
                following.task = None

    async def _run(self, following: _Following) -> None:
        look_at = 0.0
        while True:
            try:
                look_at = await self._step(following, look_at)
            except Exception as error:  # noqa: BLE001  (a waiter meets it itself, in its own call)
                _log.warning("waiting for notifications ended early: %s", type(error).__name__)
                look_at = 0.0
                following.board.wake_all()
                following.ready.set()
                await asyncio.sleep(RETRY_SECONDS)

    async def _step(self, following: _Following, look_at: float = 0.0) -> float:
        """Look at what has ended if it is time to, else follow the notifications until then.

        Returns:
            When to look again, by `elapsed_clock`.
        """
        now, board = elapsed_clock(), following.board
        follow: Callable[..., Any] | None = getattr(self._gateway, "follow", None) if self._may_follow else None
        if now >= look_at:
            ended: Ended = await self._gateway.execute(ended_call(self._keys, board.members()), retry=False)
            board.looked(ended)
            following.ready.set()
            return now + (POLL_SECONDS if follow is None else REREAD_SECONDS)
        if follow is None or board.position is None:
            await asyncio.sleep(look_at - now)
            return look_at
        try:
            news = await follow(self._keys.tracking_news, board.position, look_at - now)
        except RedisAccessError as error:
            self._may_follow = False
            _log.warning("waiters look every %s s: %s", POLL_SECONDS, error)
            return 0.0
        return 0.0 if board.heard(news) else look_at
