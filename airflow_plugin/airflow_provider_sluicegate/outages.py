"""Outlive an outage of Redis between two pokes of a sensor, each of which is a process of its own."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

__all__ = ["RescheduledOutage"]

_KEY = "sluicegate_unreachable_since"


class RescheduledOutage:
    """
    Remembers in Airflow's task state since when a rescheduled sensor could not reach Redis.

    Airflow keeps such state from 3.3 on. Below, an outage has no known beginning, and the sensor's timeout limits it.

    :param context: of the task.
    :param log: of the sensor.
    """

    def __init__(self, context: Mapping[str, Any], log: Any) -> None:
        self._store = context.get("task_state_store")
        self._was_rescheduled = bool(context.get("task_reschedule_count"))
        self._log = log

    def is_outlived(self, error: Exception, budget_seconds: float) -> bool:
        """Return whether a failed poke counts as "not yet", and log that; False once the budget is used up."""
        if self._store is None:
            self._log.warning("Redis cannot be reached; waiting until it is, or until the sensor's timeout: %s", error)
            return True
        now = datetime.now(UTC)
        noted = self._store.get(_KEY) if self._was_rescheduled else None
        since = datetime.fromisoformat(noted) if noted else now
        left = since + timedelta(seconds=budget_seconds) - now
        if left <= timedelta():
            self._store.delete(_KEY)
            return False
        if not noted:
            self._store.set(_KEY, now.isoformat())
        self._log.warning(
            "Redis cannot be reached, since %s; waiting for up to %.0f s more: %s",
            *(since.astimezone().strftime("%H:%M:%S"), left.total_seconds(), error),
        )
        return True

    def is_over(self) -> None:
        """Forget the outage, because Redis answered."""
        if self._store is not None and self._was_rescheduled and self._store.get(_KEY):
            self._store.delete(_KEY)
            self._log.info("Redis answers again")
