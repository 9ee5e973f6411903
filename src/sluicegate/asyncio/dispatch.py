"""Delivers events to `on_event`, whose failures change no outcome."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from sluicegate._dispatch_base import report_failure
from sluicegate.asyncio.runtime import await_answer
from sluicegate.events import QueueEvent

__all__ = ["emit"]


async def emit(on_event: Callable[[QueueEvent], Any], event: QueueEvent) -> None:
    """Call `on_event`; asyncio queues await what it returns when that is awaitable.

    An exception of the callback is logged by its type and reported as a `RuntimeWarning`; it changes no outcome. Only
    what ends the task or the process is raised: a cancellation, `KeyboardInterrupt`, `SystemExit`. Where nothing can be
    awaited, a coroutine is closed, with a `RuntimeWarning` that names the asyncio queue.

    Args:
        on_event: the callback.
        event: its argument.
    """
    try:
        answer = on_event(event)
        if inspect.isawaitable(answer):
            await await_answer(answer, "on_event")
    except Exception as error:  # noqa: BLE001  (an observer changes no outcome)
        report_failure(event, error)
