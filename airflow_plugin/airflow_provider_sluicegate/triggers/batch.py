"""Wait in the triggerer until a batch has been drained."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

from airflow.triggers.base import BaseTrigger, TriggerEvent

from airflow_provider_sluicegate.tracked import BatchQuestion
from airflow_provider_sluicegate.triggers._answer import first_answer

__all__ = ["RedisQueueBatchTrigger"]


class RedisQueueBatchTrigger(BaseTrigger):
    """
    Wait until a batch is complete; :class:`RedisQueueBatchSensor` uses it with ``deferrable=True``.

    All triggers of a connection in a triggerer share one poller. A look costs the same however many messages the batch
    has.

    **Delivery semantics.** The trigger only reads. Two triggerers may run it at once, and one that dies loses nothing.
    While Redis is away, the trigger waits: the task's timeout decides for how long.

    The event is ``{"status": "complete", "value": …}`` with the counts, or ``{"status": "error", "error": …,
    "is_permanent": …}`` when a value or the connection cannot work, or the user has no right to read the queue.

    :param queue_name: the name of the queue.
    :param batch_id: the id of the batch.
    :param poll_interval_seconds: the longest time between two looks.
    :param initial_delay_seconds: a pause before the first look.
    :param redis_conn_id: the connection.
    """

    def __init__(
        self,
        *,
        queue_name: str,
        batch_id: str,
        poll_interval_seconds: float = 5.0,
        initial_delay_seconds: float = 0.0,
        redis_conn_id: str = "sluicegate_default",
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)  # type: ignore[no-untyped-call]
        self.queue_name = queue_name
        self.batch_id = batch_id
        self.poll_interval_seconds = poll_interval_seconds
        self.initial_delay_seconds = initial_delay_seconds
        self.redis_conn_id = redis_conn_id

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """Return the class path and the arguments, which are plain values."""
        names = ("queue_name", "batch_id", "poll_interval_seconds", "initial_delay_seconds", "redis_conn_id")
        return f"{type(self).__module__}.{type(self).__qualname__}", {name: getattr(self, name) for name in names}

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """Yield one event: the batch is complete, or it can never be read."""
        await asyncio.sleep(self.initial_delay_seconds)
        question = BatchQuestion(self.queue_name, self.batch_id)
        look, failure = await first_answer(self, question, lambda look: look.status.is_complete)
        yield TriggerEvent(failure or {"status": "complete", "value": look.value()})
