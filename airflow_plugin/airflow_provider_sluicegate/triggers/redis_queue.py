"""Wait in the triggerer until a gate opens, for tasks."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

from airflow.triggers.base import TriggerEvent

from airflow_provider_sluicegate.conditions import Match, WatchedQueues
from airflow_provider_sluicegate.tracing import afollow_airflow, note_open_gate
from airflow_provider_sluicegate.triggers._outage import EveryMinute, OutageLog, failure_event
from airflow_provider_sluicegate.triggers._place import PlaceTrigger
from airflow_provider_sluicegate.triggers._poller import watch

__all__ = ["RedisQueueTrigger"]


class RedisQueueTrigger(PlaceTrigger):
    """
    Wait until a gate opens, for one task; :class:`RedisQueueSensor` uses it with ``deferrable=True``.

    All triggers of a connection in a triggerer share one poller, which reads the depths of all their queues in one
    round trip per interval.

    **Delivery semantics.** The trigger only reads: it claims nothing. Two triggerers may run it at once, and a
    triggerer that dies loses nothing. While Redis is away, the trigger waits: the task's timeout decides for how long.

    The event is ``{"status": "open", "value": …}`` with the counts, or ``{"status": "error", "error": …,
    "is_permanent": …}`` when a value or the connection cannot work, or the user has no right to read the queue.

    :param min_ready: the number of ready messages that opens the gate.
    :param max_age_seconds: the age of the oldest ready message that opens the gate.
    :param min_dead: the number of dead letters that opens the gate.
    :param match: whether ``"any"`` queue or group of a list opens the gate, or ``"all"`` must meet the condition.
    :param poll_interval_seconds: the longest time between two looks.
    :param initial_delay_seconds: a pause before the first look.
    :param kwargs: ``queue_name``, or ``stream`` and ``group``, and ``redis_conn_id``; a list of queues or of groups is
        fine.
    """

    def __init__(
        self,
        *,
        min_ready: int | str | None = None,
        max_age_seconds: float | str | None = None,
        min_dead: int | str | None = None,
        match: Match = "any",
        poll_interval_seconds: float = 5.0,
        initial_delay_seconds: float = 0.0,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.min_ready = min_ready
        self.max_age_seconds = max_age_seconds
        self.min_dead = min_dead
        self.match = match
        self.poll_interval_seconds = poll_interval_seconds
        self.initial_delay_seconds = initial_delay_seconds

    def arguments(self) -> dict[str, Any]:
        """Return the arguments beside those that name the queue or group; plain values."""
        return {
            "min_ready": self.min_ready,
            "max_age_seconds": self.max_age_seconds,
            "min_dead": self.min_dead,
            "match": self.match,
            "poll_interval_seconds": self.poll_interval_seconds,
            "initial_delay_seconds": self.initial_delay_seconds,
        }

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """Yield one event: the gate is open, or it can never open."""
        try:
            watched = WatchedQueues.read(
                self.queue_name,
                stream=self.stream,
                group=self.group,
                min_ready=self.min_ready,
                max_age_seconds=self.max_age_seconds,
                min_dead=self.min_dead,
                match=self.match,
            )
        except ValueError as error:
            yield TriggerEvent(failure_event(error))
            return
        await asyncio.sleep(self.initial_delay_seconds)
        outage, is_time = OutageLog(self.log), EveryMinute()
        async with watch(self.redis_conn_id, watched.places, interval_seconds=self.poll_interval_seconds) as readings:
            async for reading in readings:
                errors = [found for found in reading.values() if isinstance(found, Exception)]
                if errors:
                    if (event := outage.ends_with(errors[0])) is None:
                        continue
                    yield TriggerEvent(event)
                    return
                outage.is_over()
                look = watched.look(reading)
                if is_time() or look.is_open:
                    self.log.info("%s", look.text)
                if look.is_open:
                    await afollow_airflow()
                    note_open_gate(watched.places, reading)
                    yield TriggerEvent({"status": "open", "value": look.value})
                    return
