"""Lets every cancellation of an asyncio task through, also where code below us loses it.

Python 3.11's `asyncio.wait_for`, under which redis-py writes, returns its result instead when a cancellation arrives as
the write ends. Elsewhere one may come out as a timeout or a lost connection. The task then works on, and whoever waits
for its end waits for ever. A task counts the cancellations asked of it, which shows that one is missing.
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
    """How often code outside of any task was asked to end."""
    return 0


class CancellationGuard:
    """A block that ends in `CancelledError` when its task was cancelled meanwhile, also where nothing else says so."""

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
    """A coroutine function that ends in `CancelledError` when its task was cancelled while it ran."""

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
