"""Tell errors that a trigger outlives from those that end it."""

from __future__ import annotations

from collections.abc import Callable
from time import monotonic
from typing import Any

from airflow_provider_sluicegate.compat import AirflowNotFoundException

__all__ = ["EveryMinute", "OutageLog", "failure_event"]

_MINUTE_SECONDS = 60.0


class EveryMinute:
    """
    Says once a minute that it is time, for lines that would otherwise flood a log.

    :param clock: a monotonic clock.
    """

    def __init__(self, clock: Callable[[], float] = monotonic) -> None:
        self._clock = clock
        self._last: float | None = None

    def __call__(self) -> bool:
        now = self._clock()
        if self._last is not None and now - self._last < _MINUTE_SECONDS:
            return False
        self._last = now
        return True


class OutageLog:
    """
    Logs in a task's own log, once a minute, that Redis cannot be reached, and once that it can be again.

    :param log: of the trigger.
    """

    def __init__(self, log: Any) -> None:
        self._log = log
        self._is_time = EveryMinute()
        self._lasts = False

    def ends_with(self, error: Exception) -> dict[str, Any] | None:
        """Return the event by which an error ends the trigger, None if the trigger waits until Redis is back."""
        if (event := failure_event(error)) is not None:
            return event
        self._lasts = True
        if self._is_time():
            self._log.warning("Redis cannot be reached; waiting until it is back: %s", error)
        return None

    def is_over(self) -> None:
        """Note that Redis answered."""
        if self._lasts:
            self._lasts = False
            self._log.info("Redis answers again")


def failure_event(error: Exception) -> dict[str, Any] | None:
    """
    Return the event that fails a task because of an error, None for an outage, which passes.

    :param error: what a look at a queue raised; its text has no password and no payload.
    """
    from sluicegate.errors import (
        ConfigurationError,
        GroupNotFoundError,
        RedisMessageQueueError,
        RedisUnavailableError,
    )

    is_permanent = isinstance(error, (ConfigurationError, GroupNotFoundError, AirflowNotFoundException))
    is_refused = isinstance(error, RedisMessageQueueError) and not isinstance(error, RedisUnavailableError)
    if not is_permanent and not is_refused:
        return None
    return {"status": "error", "error": str(error), "is_permanent": is_permanent}
