"""Keep a lease from the triggerer while tasks of a run work on its messages."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from typing import Any

from airflow.triggers.base import BaseTrigger, TriggerEvent

from airflow_provider_sluicegate.hooks.redis_queue import RedisQueueHook
from airflow_provider_sluicegate.triggers._outage import OutageLog

__all__ = ["RedisQueueLeaseTrigger"]

_MAX_INTERVAL_SECONDS = 10.0  # the task ends so soon after the lease is settled


class RedisQueueLeaseTrigger(BaseTrigger):
    """
    Extend a lease until every message of it has a verdict; :class:`RedisQueueKeepLeaseOperator` uses it.

    **Delivery semantics.** The trigger settles nothing. It extends the lease three times in its life, and at least
    every 10 seconds. While Redis is away, it tries again; a lease that expires meanwhile is lost.

    The event is ``{"status": "ended", "text": …}``, or ``{"status": "error", "error": …, "is_permanent": …}`` when the
    lease is lost or cannot be used.

    :param lease: the handle of the lease, as the task that claimed returned it. Its token opens nothing but this
        opening of this lease.
    :param min_seconds: the earliest end after the start.
    :param redis_conn_id: the connection.
    """

    def __init__(
        self,
        *,
        lease: Mapping[str, str],
        min_seconds: float = 0.0,
        redis_conn_id: str = "sluicegate_default",
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)  # type: ignore[no-untyped-call]
        self.lease = dict(lease)
        self.min_seconds = min_seconds
        self.redis_conn_id = redis_conn_id

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """Return the class path and the arguments, which are plain values."""
        return (
            f"{type(self).__module__}.{type(self).__qualname__}",
            {"lease": self.lease, "min_seconds": self.min_seconds, "redis_conn_id": self.redis_conn_id},
        )

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """Yield one event: the lease has ended, is lost, or cannot be used."""
        earliest = asyncio.get_running_loop().time() + self.min_seconds
        event = await self._keep()
        await asyncio.sleep(max(0.0, earliest - asyncio.get_running_loop().time()))
        yield TriggerEvent(event)

    async def _keep(self) -> dict[str, Any]:
        """Extend the lease until it has ended; return the event that says how."""
        from airflow_provider_sluicegate.leases import handle_of
        from sluicegate.errors import LeaseEndedError, LeaseLostError

        (handle, place), outage = handle_of(self.lease), OutageLog(self.log)
        pause = min(_MAX_INTERVAL_SECONDS, handle.lease_seconds / 3)
        async with RedisQueueHook(self.redis_conn_id) as hook:
            while True:
                try:
                    queue = await hook.aopen_place(place, retry_budget_seconds=pause)
                    while True:
                        await queue.extend(handle)
                        outage.is_over()
                        await asyncio.sleep(pause)
                except LeaseEndedError as ended:
                    return {"status": "ended", "text": str(ended)}
                except LeaseLostError as lost:
                    return {"status": "error", "error": str(lost), "is_permanent": True}
                except Exception as error:  # noqa: BLE001  (a database that is away passes too)
                    if (event := outage.ends_with(error)) is not None:
                        return event
                await hook.aclose()
                await asyncio.sleep(min(1.0, pause))
