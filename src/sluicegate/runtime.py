"""What differs between threads and tasks; `sluicegate.asyncio.runtime` is the other half."""

from __future__ import annotations

import inspect
import itertools
import logging
import threading
import time
from collections.abc import Callable
from typing import Any, TypeVar

from sluicegate._dispatch_base import warn

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
AWAITS = False  # whether callbacks of the user may be async
_log = logging.getLogger("sluicegate")
_numbers = itertools.count(1)
_thread = threading.local()


def current_owner() -> int:
    """Return a number for the current thread that, unlike the system's, no later thread gets."""
    number: int | None = getattr(_thread, "number", None)
    if number is None:
        number = _thread.number = next(_numbers)
    return number


def apart(function: Callable[..., T], *arguments: Any) -> T:
    """Call a function that blocks."""
    return function(*arguments)


def give_way() -> None:
    """Let other threads run once; a call that returns without I/O may be made in a loop."""
    time.sleep(0)


def pause(seconds: float, stopping: Callable[[], bool]) -> bool:
    """Sleep until time is up or the queue is stopping; returns whether it is stopping."""
    end = time.monotonic() + seconds
    while not stopping():
        left = end - time.monotonic()
        if left <= 0:
            return False
        time.sleep(min(left, _SLICE_SECONDS))
    return True


def sleep(seconds: float) -> None:
    """Sleep, and let other threads run."""
    time.sleep(seconds)


def await_answer(answer: object, callback: str) -> None:
    """Close what an async callback returned, and warn: no thread awaits it.

    Args:
        answer: what it returned.
        callback: the callback's name.
    """
    if inspect.iscoroutine(answer):
        answer.close()
    warn(f"{callback} returned an awaitable, which nobody awaits here; use sluicegate.asyncio.RedisMessageQueue")


def is_unawaited(result: object) -> bool:
    """Return whether a handler returned something that nobody would run: an awaitable or a generator."""
    return inspect.isawaitable(result) or inspect.isgenerator(result) or inspect.isasyncgen(result)


def ensure_result(result: Any) -> Any:
    """Return the result of a handler.

    Raises:
        TypeError: nobody would run it.
    """
    if is_unawaited(result):
        if inspect.iscoroutine(result):
            result.close()
        raise TypeError(
            f"the handler returned a {type(result).__name__}; its message was released. "
            "Use sluicegate.asyncio.RedisMessageQueue for async handlers"
        )
    return result


def notify(callback: Callable[[], Any]) -> None:
    """Call a callback that only observes; its exceptions are logged."""
    try:
        ensure_result(callback())
    except Exception:  # noqa: BLE001  (an observer changes no outcome)
        _log.warning("%r raised", callback, exc_info=True)
