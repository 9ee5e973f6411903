"""Wait in the triggerer until jobs have ended."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import Any

from airflow.triggers.base import BaseTrigger, TriggerEvent

from airflow_provider_sluicegate.tracked import JobsQuestion
from airflow_provider_sluicegate.triggers._answer import first_answer

__all__ = ["RedisJobTrigger"]


class RedisJobTrigger(BaseTrigger):
    """
    Wait until all of some jobs have ended; :class:`RedisJobSensor` uses it with ``deferrable=True``.

    All triggers of a connection in a triggerer share one poller, which reads statuses only, 500 in a call.

    **Delivery semantics.** The trigger only reads, and its event carries no result. Two triggerers may run it at once,
    and one that dies loses nothing. While Redis is away, the trigger waits: the task's timeout decides for how long.

    The event is ``{"status": "ended"}``, also when a job is not known, which nothing waits for; or ``{"status":
    "error", "error": …, "is_permanent": …}`` when a value or the connection cannot work, or the user has no right to
    read the queue.

    :param queue_name: the name of the queue.
    :param job_ids: the ids of the jobs.
    :param poll_interval_seconds: the longest time between two looks.
    :param initial_delay_seconds: a pause before the first look.
    :param redis_conn_id: the connection.
    """

    def __init__(
        self,
        *,
        queue_name: str,
        job_ids: Sequence[str],
        poll_interval_seconds: float = 5.0,
        initial_delay_seconds: float = 0.0,
        redis_conn_id: str = "sluicegate_default",
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)  # type: ignore[no-untyped-call]
        self.queue_name = queue_name
        self.job_ids = list(job_ids)
        self.poll_interval_seconds = poll_interval_seconds
        self.initial_delay_seconds = initial_delay_seconds
        self.redis_conn_id = redis_conn_id

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """Return the class path and the arguments, which are plain values."""
        names = ("queue_name", "job_ids", "poll_interval_seconds", "initial_delay_seconds", "redis_conn_id")
        return f"{type(self).__module__}.{type(self).__qualname__}", {name: getattr(self, name) for name in names}

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """Yield one event: the jobs have ended, or they can never be read."""
        await asyncio.sleep(self.initial_delay_seconds)
        question = JobsQuestion(self.queue_name, tuple(self.job_ids))
        _, failure = await first_answer(self, question, lambda look: look.has_ended)
        yield TriggerEvent(failure or {"status": "ended"})
