"""A batch as a unit: its messages are published under one id, and it completes when all of them have ended."""

from __future__ import annotations

import math

from sluicegate import checks
from sluicegate.asyncio.session import Session
from sluicegate.batch_status import BatchStatus
from sluicegate.clock import elapsed_clock
from sluicegate.core.call import alone
from sluicegate.core.tracking import batch_member, batch_name
from sluicegate.core.transitions.batches import batch_call
from sluicegate.report import PublishReport

__all__ = ["Batch"]

_LONGEST_SLEEP_SECONDS = 60.0  # notifications and the looks between them make it shorter


class Batch:
    """A batch is several messages that were published as a unit, whoever handles them and however often.

    `queue.batch(...)` publishes one, and `queue.get_batch(id)` finds one. Making the object does no I/O.

    Attributes:
        id: the batch.
        report: the outcomes of the publish, by position; None when the batch was only found.
    """

    def __init__(self, session: Session, batch_id: str, report: PublishReport | None = None) -> None:
        self.id = batch_id
        self.report = report
        self._session = session
        self._name = batch_name(batch_id)

    async def status(self) -> BatchStatus:
        """Count the messages of the batch by state, in one small call whatever their number."""
        call = batch_call(self._session.keys, "status", self._name)
        return BatchStatus.of(self.id, await self._session.runner.run(alone(call)))

    async def wait(self, timeout_seconds: float | None = None) -> BatchStatus:
        """Wait until the batch is complete.

        Any number of waiters share one connection. The wait ends early when the queue object is stopping, and at once
        for a batch that is not known.

        Args:
            timeout_seconds: how long to wait; None for as long as it takes.

        Returns:
            The last status; look at `is_complete`.

        Raises:
            RedisUnavailableError: Redis cannot be reached.
        """
        if timeout_seconds is not None:
            checks.not_negative("timeout_seconds", timeout_seconds)
        deadline = math.inf if timeout_seconds is None else elapsed_clock() + timeout_seconds
        status = await self._read()
        if self._is_over(status, deadline):
            return status
        async with self._session.notices.watching(batch_member(self._name)) as watch:
            while True:
                status = await self._read()
                if self._is_over(status, deadline):
                    return status
                left = min(deadline - elapsed_clock(), _LONGEST_SLEEP_SECONDS)
                await watch.wait(left, self._session.activity.stopping)

    async def _read(self) -> BatchStatus:
        async with self._session.notices.reading:
            return await self.status()

    def _is_over(self, status: BatchStatus, deadline: float) -> bool:
        over = status.is_complete or not status.exists
        return over or elapsed_clock() >= deadline or self._session.activity.stopping()

    def __repr__(self) -> str:
        return f"Batch({self.id!r})"
