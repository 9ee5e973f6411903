"""Tells `on_event`, whatever it does with it; `sluicegate.asyncio.dispatch` is the other half."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from sluicegate._dispatch_base import report_failure, warn
from sluicegate.events import QueueEvent

__all__ = ["emit"]


def emit(on_event: Callable[[QueueEvent], Any], event: QueueEvent) -> None:
    """Call `on_event` in this thread.

    Whatever it raises is logged by its type and told as a `RuntimeWarning`, and alters no outcome. Only what asks the
    process to end goes through: `KeyboardInterrupt` and `SystemExit`. What an async callback returns is closed, with a
    `RuntimeWarning` that names the asyncio queue.

    Args:
        on_event: the callback.
        event: what it is told.
    """
    try:
        answer = on_event(event)
        if inspect.isawaitable(answer):
            if inspect.iscoroutine(answer):
                answer.close()
            warn("on_event returned an awaitable, which nobody awaits here; use sluicegate.asyncio.RedisMessageQueue")
    except Exception as error:  # noqa: BLE001  (an observer alters no outcome)
        report_failure(event, error)
