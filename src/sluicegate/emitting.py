"""Tells `on_event`, whatever it does with it; `sluicegate.asyncio.emitting` is the other half."""

from __future__ import annotations

import inspect
import logging
import warnings
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from sluicegate.events import QueueEvent

__all__ = ["emit", "report_failure"]

_log = logging.getLogger("sluicegate")


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
            _warn("on_event returned an awaitable, which nobody awaits here; use sluicegate.asyncio.RedisMessageQueue")
    except Exception as error:  # noqa: BLE001  (an observer alters no outcome)
        report_failure(event, error)


def report_failure(event: QueueEvent, error: Exception) -> None:
    """Log and warn that `on_event` raised; the text of its error may hold payloads and stays out."""
    kind = type(error).__name__
    with suppress(Exception):  # nor does a log handler of the user's
        _log.warning(
            "on_event raised %s at %s/%s of queue %r", kind, event.operation.value, event.outcome.value, event.queue
        )
    _warn(f"on_event raised {kind}; events are told after the fact and alter nothing")


def _warn(text: str) -> None:
    with suppress(Warning):  # where warnings are errors, this one is none all the same
        warnings.warn(text, RuntimeWarning, stacklevel=3)
