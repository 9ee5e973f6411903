"""A policy turns a handler's error into the verdict for its message."""

from __future__ import annotations

import logging
import math
from dataclasses import dataclass
from typing import Any, Literal

import tenacity

from sluicegate import checks
from sluicegate.core.bounds import (
    MAX_ERROR_LENGTH,
    MAX_ERROR_TYPE_LENGTH,
    MAX_REASON_LENGTH,
    NO_WHY,
    SEPARATOR,
    shorten,
)
from sluicegate.core.ledger import Verb

__all__ = [
    "DEFAULT_BACKOFF",
    "Failure",
    "OnError",
    "after_error",
    "backoff_seconds",
    "pause_seconds",
    "stored_reason",
    "text_of",
    "why",
]

_log = logging.getLogger("sluicegate")

OnError = Literal["retry", "bury", "discard"]

DEFAULT_BACKOFF: Any = tenacity.wait_exponential_jitter(initial=1, max=300, jitter=1)


@dataclass(frozen=True, slots=True)
class Failure:
    """A failure is the verdict for a message whose handler raised.

    Attributes:
        verb: nack, bury or discard.
        delay_seconds: how long a nacked message cannot be claimed.
        reason: the reason of a bury.
    """

    verb: Verb
    delay_seconds: float = 0.0
    reason: str = ""


def after_error(on_error: OnError, retry_backoff: Any, deliveries: int, error: BaseException | None = None) -> Failure:
    """Return the verdict that `on_error` means for the current message.

    Args:
        on_error: `retry` after a pause, `bury`, or `discard`, which deletes the message.
        retry_backoff: one of tenacity's wait strategies; the deliveries are its attempts.
        deliveries: the deliveries of the message, including this one.
        error: the exception, for strategies that use it.
    """
    if on_error == "bury":
        return Failure("bury", reason="handler_error")
    if on_error == "discard":
        return Failure("discard")
    return Failure("nack", pause_seconds(retry_backoff, deliveries, error))


def pause_seconds(wait: Any, deliveries: int, error: BaseException | None = None) -> float:
    """Return `backoff_seconds`, or those of the default strategy if the configured one fails.

    A strategy that fails must not prevent the verdict.
    """
    try:
        return backoff_seconds(wait, deliveries, error)
    except Exception as broken:  # noqa: BLE001  (the user's own code, whatever it raises)
        _log.warning("retry_backoff failed (%s); the default is used", type(broken).__name__)
        return backoff_seconds(DEFAULT_BACKOFF, deliveries)


def backoff_seconds(wait: Any, deliveries: int, error: BaseException | None = None) -> float:
    """Return how long a message cannot be claimed after `deliveries`, by one of tenacity's wait strategies.

    Raises:
        ValueError: the strategy did not return a duration.
    """
    state = tenacity.RetryCallState(tenacity.Retrying(), None, (), {})
    state.attempt_number = max(1, deliveries)
    if error is not None:
        state.set_exception((type(error), error, error.__traceback__))
    seconds = float(wait(state))
    if not math.isfinite(seconds) or seconds > checks.MAX_SECONDS:
        raise ValueError(
            f"retry_backoff gave {seconds!r} for attempt {state.attempt_number}; it must be finite, at most 100 years"
        )
    return max(0.0, seconds)


def text_of(error: BaseException) -> str:
    """Return the text of an error, or a placeholder if its own code fails to make one."""
    try:
        return str(error)
    except Exception as failure:  # noqa: BLE001  (the error's own code, whatever it raises)
        return f"(its text cannot be shown: {type(failure).__name__})"


def why(reason: str = "", error: BaseException | str | None = None) -> bytes:
    """Join reason, error type and error text as the scripts keep them, each shortened to its limit."""
    if error is None:
        if not reason:
            return NO_WHY
        kind, text = "", ""
    elif isinstance(error, str):
        kind, text = "", error
    else:
        kind, text = type(error).__name__, text_of(error)
    parts = (stored_reason(reason), _stored(kind, MAX_ERROR_TYPE_LENGTH), _stored(text, MAX_ERROR_LENGTH))
    return SEPARATOR.join(parts)


def stored_reason(reason: str) -> bytes:
    """Encode the reason of a bury as it is stored."""
    return _stored(reason, MAX_REASON_LENGTH)


def _stored(text: str, longest: int) -> bytes:
    return shorten(text, longest).replace(SEPARATOR.decode(), " ").encode(errors="replace")
