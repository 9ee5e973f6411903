"""Raises every cancellation of an asyncio task, also one that a library below loses.

In Python 3.11, `asyncio.wait_for`, under which redis-py writes, returns its result when a cancellation arrives as the
write ends. Other code turns a cancellation into a timeout or a lost connection. The task then continues, and whoever
waits for its end waits for ever. A task counts the cancellations requested of it, so a missing one can be detected.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import wraps
from types import TracebackType
from typing import ParamSpec, TypeVar

__all__ = ["CancellationGuard", "heeds_cancellation"]

P = ParamSpec("P")
T = TypeVar("T")


def _never() -> int:
    """Return 0: code outside of any task is never cancelled."""
    return 0


class CancellationGuard:
    """Ends its block in `CancelledError` when the task was cancelled meanwhile, whatever else the block raised."""

    __slots__ = ("_asked", "_before")

    def __enter__(self) -> None:
        task = asyncio.current_task()
        self._asked = task.cancelling if task is not None else _never
        self._before = self._asked()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._asked() > self._before and (error is None or isinstance(error, Exception)):
            raise asyncio.CancelledError from error


def heeds_cancellation(function: Callable[P, Awaitable[T]]) -> Callable[P, Awaitable[T]]:
    """Make a coroutine function end in `CancelledError` when its task was cancelled while it ran."""

    @wraps(function)
    async def heeding(*args: P.args, **options: P.kwargs) -> T:
        task = asyncio.current_task()
        asked = task.cancelling if task is not None else _never
        before = asked()
        hidden: Exception | None = None
        try:
            result = await function(*args, **options)
        except Exception as error:
            if asked() <= before:
                raise
            hidden = error
        else:
            if asked() <= before:
                return result
        await asyncio.sleep(0)  # a callback that cancels its own task: delivered here, it does not come a second time
        raise asyncio.CancelledError from hidden

    return heeding
