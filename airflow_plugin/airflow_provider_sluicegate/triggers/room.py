"""Wait in the triggerer until a queue has room for more messages."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

from airflow.triggers.base import TriggerEvent

from airflow_provider_sluicegate.places import named_place
from airflow_provider_sluicegate.triggers._outage import EveryMinute, OutageLog
from airflow_provider_sluicegate.triggers._place import PlaceTrigger
from airflow_provider_sluicegate.triggers._poller import watch

__all__ = ["RedisQueueRoomTrigger"]


class RedisQueueRoomTrigger(PlaceTrigger):
    """
    Wait until fewer messages wait in a queue than it may hold, for a task that publishes.

    Messages that wait are pending, returned or delayed; they are what ``max_pending_length`` limits. A stream has no
    such limit.

    **Delivery semantics.** The trigger only reads. Room that it found may be gone when the task publishes, which then
    waits again. While Redis is away, the trigger waits.

    The event is ``{"status": "room", "waiting": …}``, or ``{"status": "error", …}`` as for
    :class:`RedisQueueTrigger`.

    :param max_waiting: the largest number of waiting messages that counts as room.
    :param poll_interval_seconds: the longest time between two looks.
    :param initial_delay_seconds: a pause before the first look.
    :param kwargs: ``queue_name`` and ``redis_conn_id``.
    """

    def __init__(
        self,
        *,
        max_waiting: int,
        poll_interval_seconds: float = 5.0,
        initial_delay_seconds: float = 0.0,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.max_waiting = max_waiting
        self.poll_interval_seconds = poll_interval_seconds
        self.initial_delay_seconds = initial_delay_seconds

    def arguments(self) -> dict[str, Any]:
        """Return the arguments beside those that name the queue or group; plain values."""
        return {
            "max_waiting": self.max_waiting,
            "poll_interval_seconds": self.poll_interval_seconds,
            "initial_delay_seconds": self.initial_delay_seconds,
        }

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """Yield one event: there is room, or the queue can never be read."""
        await asyncio.sleep(self.initial_delay_seconds)
        outage, is_time, place = OutageLog(self.log), EveryMinute(), named_place(self.queue_name)
        async with watch(self.redis_conn_id, [place], interval_seconds=self.poll_interval_seconds) as readings:
            async for reading in readings:
                depth = reading[place]
                if isinstance(depth, Exception):
                    if (event := outage.ends_with(depth)) is None:
                        continue
                    yield TriggerEvent(event)
                    return
                outage.is_over()
                waiting = depth.pending + depth.returned + depth.delayed
                if waiting <= self.max_waiting:
                    yield TriggerEvent({"status": "room", "waiting": waiting})
                    return
                if is_time():
                    self.log.info(
                        "queue %r: %d messages wait; publishing goes on when %d or fewer do",
                        *(self.queue_name, waiting, self.max_waiting),
                    )
