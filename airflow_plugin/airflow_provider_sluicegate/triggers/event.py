"""Wake an asset's DAGs when a queue is deep or old enough."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from time import monotonic
from typing import TYPE_CHECKING, Any

from airflow.triggers.base import BaseEventTrigger, TriggerEvent

from airflow_provider_sluicegate.conditions import WatchedQueues
from airflow_provider_sluicegate.triggers._outage import EveryMinute, failure_event
from airflow_provider_sluicegate.triggers._place import PlaceTrigger
from airflow_provider_sluicegate.triggers._poller import watch

if TYPE_CHECKING:
    from sluicegate import Depth

__all__ = ["RedisQueueEventTrigger"]


class RedisQueueEventTrigger(PlaceTrigger, BaseEventTrigger):
    """
    Create an asset event when a gate opens, and again while its messages are not claimed; for an ``AssetWatcher``.

    The event is a wake-up and carries counts only: ``{"queue": …, "ready": …, …, "fired_by": …}``, in the asset event's
    ``extra["payload"]``. The DAG that it starts claims the messages, with a drain for instance.

    **Delivery semantics.** The messages stay in the queue until a task claims them, so a lost event loses no message.
    An open gate fires once. It fires again when no message has been claimed for ``refire_after_seconds`` while
    messages wait: then the run of the first event was lost, failed, or left messages behind. It fires anew each time it
    was seen closed in between. A paused queue never fires. After a restart of the triggerer, an open gate fires again,
    so the DAG must expect an empty queue. The trigger never fails: while Redis or the connection cannot be used, it
    waits, and the triggerer's log has one warning a minute.

    .. code-block:: python

        orders = Asset(
            "orders-queue",
            watchers=[AssetWatcher(name="gate", trigger=RedisQueueEventTrigger(queue_name="orders", min_ready=1000))],
        )

    :param min_ready: the number of ready messages that opens the gate. Its default is 1 without another condition.
    :param max_age_seconds: the age of the oldest ready message that opens the gate.
    :param min_dead: the number of dead letters that opens the gate; it fires again only for more of them.
    :param refire_after_seconds: how long no message may have been claimed before an open gate fires again. Make it
        longer than a run takes from the event to its first claim.
    :param poll_interval_seconds: the longest time between two looks.
    :param kwargs: ``queue_name``, or ``stream`` and ``group``, and ``redis_conn_id``. In the event of a group,
        ``stream`` and ``group`` stand for ``queue``.
    """

    def __init__(
        self,
        *,
        min_ready: int | None = None,
        max_age_seconds: float | None = None,
        min_dead: int | None = None,
        refire_after_seconds: float = 60.0,
        poll_interval_seconds: float = 5.0,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        if min_ready is None and max_age_seconds is None and min_dead is None:
            min_ready = 1
        self.min_ready = min_ready
        self.max_age_seconds = max_age_seconds
        self.min_dead = min_dead
        self.refire_after_seconds = refire_after_seconds
        self.poll_interval_seconds = poll_interval_seconds
        self._watched()

    def arguments(self) -> dict[str, Any]:
        """Return the arguments beside those that name the queue or group; plain values."""
        return {
            "min_ready": self.min_ready,
            "max_age_seconds": self.max_age_seconds,
            "min_dead": self.min_dead,
            "refire_after_seconds": self.refire_after_seconds,
            "poll_interval_seconds": self.poll_interval_seconds,
        }

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """Yield an event whenever the gate wakes the DAG; never end, and never fail because of Redis."""
        watched, is_time = self._watched(), EveryMinute()
        (place,) = watched.places
        rearming = Rearming(self.refire_after_seconds)
        async with watch(self.redis_conn_id, watched.places, interval_seconds=self.poll_interval_seconds) as readings:
            async for reading in readings:
                depth = reading[place]
                if isinstance(depth, Exception):
                    if failure_event(depth) is not None and is_time():  # an outage is in the poller's own warning
                        self.log.warning("%s cannot be watched: %s", place, depth)
                    continue
                look = watched.look({place: depth})
                if rearming.fires(depth, look.value["fired_by"]):
                    self.log.info("%s", look.text)
                    yield TriggerEvent(look.value)

    def _watched(self) -> WatchedQueues:
        """Read the arguments, also to refuse at parse time what cannot work."""
        from sluicegate import checks
        from sluicegate.errors import ConfigurationError

        for argument, kind in (("queue_name", "queue"), ("group", "group")):
            if not isinstance(getattr(self, argument), str | None):
                raise ConfigurationError(
                    f"{argument} is the name of one {kind} here; give each {kind} a watcher of its own"
                )
        checks.positive("refire_after_seconds", self.refire_after_seconds)
        checks.positive("poll_interval_seconds", self.poll_interval_seconds)
        return WatchedQueues.read(
            self.queue_name,
            stream=self.stream,
            group=self.group,
            min_ready=self.min_ready,
            max_age_seconds=self.max_age_seconds,
            min_dead=self.min_dead,
        )


@dataclass(slots=True)
class Rearming:
    """
    Decides when an open gate fires.

    :param refire_after_seconds: without a claim, before it fires again.
    :param clock: a monotonic clock.
    """

    refire_after_seconds: float
    clock: Callable[[], float] = field(default=monotonic)
    _claimed: int = -1
    _dead: int = 0
    _quiet_since: float | None = None

    def fires(self, depth: Depth, fired_by: str | None) -> bool:
        """Return whether a reading wakes the DAG."""
        now = self.clock()
        if fired_by is None:
            self._quiet_since = None
            return False
        if self._quiet_since is None:
            return self._fire(depth, now)
        if fired_by == "dead":
            return depth.dead > self._dead and self._fire(depth, now)
        if depth.claimed_total != self._claimed:
            self._claimed, self._quiet_since = depth.claimed_total, now
            return False
        return now - self._quiet_since >= self.refire_after_seconds and self._fire(depth, now)

    def _fire(self, depth: Depth, now: float) -> bool:
        self._claimed, self._dead, self._quiet_since = depth.claimed_total, depth.dead, now
        return True
