"""Carry the messages of a queue in asset events, and ack them after the events are stored."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Hashable, Sequence
from typing import TYPE_CHECKING, Any

from airflow.triggers.base import BaseEventTrigger, TriggerEvent
from airflow.utils.log.logging_mixin import LoggingMixin

from airflow_provider_sluicegate.compat import AirflowOptionalProviderFeatureException
from airflow_provider_sluicegate.hooks.redis_queue import RedisQueueHook
from airflow_provider_sluicegate.payloads import parts_of
from airflow_provider_sluicegate.places import named_place, value_of
from airflow_provider_sluicegate.triggers._outage import EveryMinute
from airflow_provider_sluicegate.triggers._place import PlaceTrigger

try:
    from airflow.triggers.shared_stream import AdvanceItem, SharedStreamProducer
except ImportError as error:  # Airflow 3.2
    raise AirflowOptionalProviderFeatureException(
        "RedisQueueDeliveryTrigger needs Airflow 3.3, whose triggerer says when an event is stored; "
        "RedisQueueEventTrigger wakes a DAG on every version"
    ) from error

if TYPE_CHECKING:
    from sluicegate.asyncio import Lease
    from sluicegate.asyncio.consumer import QueueConsumer

__all__ = ["RedisQueueDeliveryTrigger"]

_WAIT_SECONDS = 10.0
_MAX_PAUSE_SECONDS = 30.0
_AGAIN_SECONDS = 30.0  # before messages are delivered again whose event was not stored
_UNWATCHED_SECONDS = 5.0  # before the next claim when no trigger was left; the stream usually ends before that


class RedisQueueDeliveryTrigger(PlaceTrigger, BaseEventTrigger):
    """
    Create an asset event per message or small batch; for an ``AssetWatcher`` on Airflow 3.3 and later.

    The event's ``extra["payload"]`` is ``{"queue": …, "messages": [{"id", "payload", "encoding", "headers",
    "delivery_count", "enqueued_at"}]}``, as :class:`RedisQueueConsumeOperator` hands messages on. For a group of a
    stream, ``stream`` and ``group`` stand for ``queue``.

    Prefer :class:`RedisQueueEventTrigger` with a drain, unless each message must be visible as an asset event. Airflow
    3.3 combines events that arrive close together into one DAG run, and can leave the last events of a burst without a
    run until another event arrives. So read all events of a run, in ``triggering_asset_events``, and let a missed run
    cost no more than time.

    **Delivery semantics.** A message is acked after Airflow has stored its event, so it is in an asset event at least
    once: a triggerer that dies between the two delivers it again, in another event with the same message id. Until
    then a heartbeat keeps its lease. If Airflow cannot store the event within ``[triggerer]
    shared_stream_ack_timeout``, the messages are nacked and delivered again after 30 seconds. When a run fails, its
    messages are not delivered again. While Redis cannot be reached, the trigger waits.

    All triggers with the same arguments in a triggerer share one consumer, and each gets every message. A message that
    does not fit into ``max_event_bytes`` becomes a dead letter with the reason ``too_large_for_event``.

    :param max_messages: the most messages per event.
    :param max_event_bytes: the most bytes of an event's messages as JSON, which Airflow's database stores.
    :param max_outstanding: the most events that wait to be stored.
    :param lease_seconds: how long a message stays leased after its triggerer has died.
    :param kwargs: ``queue_name``, or ``stream`` and ``group``, and ``redis_conn_id``.
    """

    def __init__(
        self,
        *,
        max_messages: int = 1,
        max_event_bytes: int = 48_000,
        max_outstanding: int = 100,
        lease_seconds: float = 60.0,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        from sluicegate import checks
        from sluicegate.core.bounds import MAX_CLAIM_LIMIT

        checks.count("max_messages", max_messages, MAX_CLAIM_LIMIT)
        checks.count("max_event_bytes", max_event_bytes)
        checks.count("max_outstanding", max_outstanding, 1000)
        checks.positive("lease_seconds", lease_seconds)
        named_place(self.queue_name, self.stream, self.group, is_read=True)
        self.max_messages = max_messages
        self.max_event_bytes = max_event_bytes
        self.max_outstanding = max_outstanding
        self.lease_seconds = lease_seconds

    def arguments(self) -> dict[str, Any]:
        """Return the arguments beside those that name the queue or group; plain values."""
        return {
            "max_messages": self.max_messages,
            "max_event_bytes": self.max_event_bytes,
            "max_outstanding": self.max_outstanding,
            "lease_seconds": self.lease_seconds,
        }

    def shared_stream_key(self) -> Hashable:
        """Return what triggers have in common that share one consumer: all arguments."""
        return ("sluicegate", *self.serialize()[1].items())

    @classmethod
    def create_shared_stream_producer(cls, kwargs: dict[str, Any]) -> SharedStreamProducer:
        """Make the consumer of the queue; it connects when its stream is opened."""
        return _Deliverer(**kwargs)

    async def filter_shared_stream(self, shared_stream: AsyncIterator[Any]) -> AsyncIterator[TriggerEvent]:
        """Make an event of each batch."""
        async for batch in shared_stream:
            yield _BatchEvent(payload=batch)

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """Refuse to run without a shared stream, which alone says when an event is stored."""
        raise NotImplementedError("RedisQueueDeliveryTrigger runs in the triggerer of Airflow 3.3, for asset watchers")
        yield


class _BatchEvent(TriggerEvent):
    """Carries a batch. The triggerer logs each event, and payloads do not belong in a log."""

    def __repr__(self) -> str:
        names = ", ".join(f"{name} {value!r}" for name, value in self.payload.items() if name != "messages")
        return f"TriggerEvent<{len(self.payload['messages'])} messages of {names}>"

    __str__ = __repr__


class _Deliverer(LoggingMixin, SharedStreamProducer):
    """Claims batches, and settles each when Airflow says what became of its event."""

    def __init__(
        self,
        *,
        max_messages: int,
        max_event_bytes: int,
        max_outstanding: int,
        lease_seconds: float,
        redis_conn_id: str,
        **names: Any,
    ) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._place = named_place(**names)
        self._max_messages = max_messages
        self._max_event_bytes = max_event_bytes
        self._free = asyncio.Semaphore(max_outstanding)
        self._lease_seconds = lease_seconds
        self._redis_conn_id = redis_conn_id
        self._held: dict[str, Lease] = {}
        self._is_watched = True
        self._hook: RedisQueueHook | None = None
        self._is_time = EveryMinute()

    async def open_stream(self) -> AsyncIterator[tuple[dict[str, Any], Lease]]:
        """Yield batches for ever; an outage only delays them."""
        failures = 0
        while True:
            await self._free.acquire()
            if not self._is_watched:
                self._is_watched = True
                await asyncio.sleep(_UNWATCHED_SECONDS)
            try:
                found = await self._next()
            except Exception as error:  # noqa: BLE001  (a stream that ends fails every trigger, to be made anew at once)
                found = None
                failures += 1
                await self._pause_after(error, failures)
            else:
                failures = 0
            if found is None:
                self._free.release()
            else:
                self._held[found[1].id] = found[1]
                yield found

    async def advance(self, batch: Sequence[AdvanceItem]) -> None:
        """Settle the batches whose events are resolved."""
        from sluicegate.errors import RedisMessageQueueError

        for lease, outcome in batch:
            self._free.release()
            del self._held[lease.id]
            try:
                if outcome.failed:
                    await lease.nack(delay_seconds=_AGAIN_SECONDS, error="Airflow did not store the event")
                elif outcome.acked:
                    await lease.ack()
                else:
                    self._is_watched = False
                    await lease.release()
            except RedisMessageQueueError as error:
                self.log.warning("%s: a batch could not be settled and will be delivered again: %s", self._place, error)

    def get_advance_lane(self, lease: Lease) -> Hashable:
        """Return the lease's own lane: batches are settled in any order."""
        return lease.id

    async def aclose(self) -> None:
        """Release what was not stored, and close the connections."""
        hook, self._hook = self._hook, None
        if hook is not None:
            await hook.aclose()

    async def _next(self) -> tuple[dict[str, Any], Lease] | None:
        from sluicegate import Verdict

        if self._hook is None:
            self._hook = RedisQueueHook(self._redis_conn_id)
            self._queue: QueueConsumer = await self._hook.aopen_place(self._place)
        lease = await self._queue.claim(
            self._max_messages, lease_seconds=self._lease_seconds, wait_seconds=_WAIT_SECONDS
        )
        if not lease:
            return None
        lease.start_heartbeat()
        parts = parts_of(lease.messages, self._max_event_bytes)
        reason = f"a message exceeds max_event_bytes={self._max_event_bytes}"
        if parts.too_large or parts.left:
            await lease.settle(
                Verdict("bury", parts.too_large, reason="too_large_for_event", error=reason),
                Verdict("release", parts.left),
            )
        if parts.too_large:
            self.log.error(
                "%s: %s; now dead letters: %s",
                *(self._place, reason, ", ".join(message.id for message in parts.too_large)),
            )
        return ({**value_of(self._place), "messages": parts.values}, lease) if parts.values else None

    async def _pause_after(self, error: Exception, failures: int) -> None:
        """Wait before the next attempt, with a connection looked up anew."""
        pause = min(_MAX_PAUSE_SECONDS, 2.0 ** min(failures, 5)) * random.uniform(0.5, 1)
        if self._is_time():
            self.log.warning("%s cannot be read, trying again in %.0f s and so on: %s", self._place, pause, error)
        if not self._held:
            await self.aclose()
        await asyncio.sleep(pause)
