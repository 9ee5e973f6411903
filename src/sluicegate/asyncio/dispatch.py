"""Tells `on_event`, whatever it does with it; `sluicegate.dispatch` is the other half."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from sluicegate._dispatch_base import report_failure
from sluicegate.events import QueueEvent

__all__ = ["emit"]


async def emit(on_event: Callable[[QueueEvent], Any], event: QueueEvent) -> None:
    """Call `on_event`, plain or async, and await what it returns when that can be awaited.

    Whatever it raises is logged by its type and told as a `RuntimeWarning`, and alters no outcome. Only what asks the
    task or process to end goes through: a cancellation, `KeyboardInterrupt`, `SystemExit`.

    Args:
        on_event: the callback.
        event: what it is told.
    """
    try:
        answer = on_event(event)
        if inspect.isawaitable(answer):
            await answer
    except Exception as error:  # noqa: BLE001  (an observer alters no outcome)
        report_failure(event, error)
