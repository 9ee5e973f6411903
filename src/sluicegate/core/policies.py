"""What happens to messages whose handler raised."""

from __future__ import annotations

from typing import Any

import tenacity

__all__ = ["DEFAULT_BACKOFF", "backoff_seconds", "why"]

DEFAULT_BACKOFF: Any = tenacity.wait_exponential_jitter(initial=1, max=300, jitter=1)
_LONGEST_ERROR = 2000
_US = "\x1f"


def backoff_seconds(wait: Any, deliveries: int) -> float:
    """How long a message stays out of reach after so many deliveries, by one of tenacity's wait strategies."""
    state = tenacity.RetryCallState(tenacity.Retrying(), None, (), {})
    state.attempt_number = max(1, deliveries)
    return float(wait(state))


def why(reason: str = "", error: BaseException | str | None = None) -> bytes:
    """Reason, error type and error text as the scripts keep them: one line each, at most 2,000 characters of text."""
    if error is None:
        kind, text = "", ""
    elif isinstance(error, str):
        kind, text = "", error
    else:
        kind, text = type(error).__name__, str(error)
    parts = (reason, kind, text[:_LONGEST_ERROR])
    return _US.join(part.replace(_US, " ") for part in parts).encode(errors="replace")
