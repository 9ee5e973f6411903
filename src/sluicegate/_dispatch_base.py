"""Reports the failures of observers, which change no outcome."""

from __future__ import annotations

import logging
import warnings
from contextlib import suppress

from sluicegate.events import QueueEvent

__all__ = ["report_failure", "warn"]

_log = logging.getLogger("sluicegate")


def report_failure(event: QueueEvent, error: Exception) -> None:
    """Log and warn that `on_event` raised; the text of its error may hold payloads and stays out."""
    kind = type(error).__name__
    with suppress(Exception):  # the user's log handler may fail too
        _log.warning(
            "on_event raised %s at %s/%s of queue %r", kind, event.operation.value, event.outcome.value, event.queue
        )
    warn(f"on_event raised {kind}; events are told after the fact and alter nothing")


def warn(text: str) -> None:
    """Issue a `RuntimeWarning`, and nothing where warnings are errors."""
    with suppress(Warning):
        warnings.warn(text, RuntimeWarning, stacklevel=3)
