"""What differs between tasks and threads; `sluicegate.runtime` is the other half."""

from __future__ import annotations

import asyncio
import inspect
import itertools
import logging
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

__all__ = [
    "AWAITS",
    "apart",
    "await_answer",
    "current_owner",
    "ensure_result",
    "give_way",
    "is_unawaited",
    "notify",
    "pause",
    "sleep",
]

T = TypeVar("T")
_SLICE_SECONDS = 0.05
AWAITS = True  # whether callbacks of the user may be async
_log = logging.getLogger("sluicegate")
_numbers = itertools.count(1)
_tasks: WeakKeyDictionary[asyncio.Task[Any], int] = WeakKeyDictionary()


def current_owner() -> int:
    """Return a number for the current task that, unlike its `id`, no later task gets."""
    task = asyncio.current_task()
    if task is None:  # nobody awaits in a plain callback
        return 0
    number = _tasks.get(task)
    if number is None:
        number = _tasks[task] = next(_numbers)
    return number


async def apart(function: Callable[..., T], *arguments: Any) -> T:
    """Call a function that blocks, in a thread of its own."""
    return await asyncio.to_thread(function, *arguments)


async def give_way() -> None:
    """Let other tasks run once; a call that returns without I/O may be made in a loop."""
    await asyncio.sleep(0)


async def pause(seconds: float, stopping: Callable[[], bool]) -> bool:
    """Sleep until time is up or the queue is stopping; returns whether it is stopping."""
    loop = asyncio.get_running_loop()
    end = loop.time() + seconds
    while not stopping():
        left = end - loop.time()
        if left <= 0:
            return False
        await asyncio.sleep(min(left, _SLICE_SECONDS))
    return True


async def sleep(seconds: float) -> None:
    """Sleep, and let other tasks run."""
    await asyncio.sleep(seconds)


async def await_answer(answer: Awaitable[Any], callback: str) -> None:
    """Await what a callback returned.

    Args:
        answer: what it returned.
        callback: the callback's name, for warnings where nothing can be awaited.
    """
    del callback
    await answer


def is_unawaited(result: object) -> bool:
    """Return whether a handler returned something that nobody would run: a generator."""
    return inspect.isgenerator(result) or inspect.isasyncgen(result)


async def ensure_result(result: Any) -> Any:
    """Return the result of a handler, awaited when it is awaitable.

    Raises:
        TypeError: nobody would run it.
    """
    if is_unawaited(result):
        raise TypeError(
            f"the handler returned a {type(result).__name__}, which does nothing by itself; its message was released"
        )
    return await result if inspect.isawaitable(result) else result


async def notify(callback: Callable[[], Any]) -> None:
    """Call a callback that only observes; its exceptions are logged."""
    try:
        await ensure_result(callback())
    except Exception:  # noqa: BLE001  (an observer changes no outcome)
        _log.warning("%r raised", callback, exc_info=True)
