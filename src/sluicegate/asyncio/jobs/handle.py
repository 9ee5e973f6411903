"""A handle on a job: what was last read of it, and waiting for its end."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Self

from sluicegate import checks
from sluicegate.clock import elapsed_clock
from sluicegate.core.tracking import JobStatus
from sluicegate.core.transitions.jobs import JobParts
from sluicegate.errors import JobCancelledError, JobFailedError
from sluicegate.jobs.view import JobBase

if TYPE_CHECKING:
    from sluicegate.asyncio.jobs.queue import RedisJobQueue

__all__ = ["Job"]


class Job(JobBase):
    """A job of a queue, as it was when it was last read; `refresh` reads it again.

    Attributes:
        id: the job's id.
        cancel_requested: whether somebody asked to cancel it.
    """

    __slots__ = ("_queue",)

    def __init__(self, queue: RedisJobQueue, parts: JobParts) -> None:
        super().__init__(queue.name, parts)
        self._queue = queue

    async def refresh(self) -> Self:
        """Read the job again, and return it.

        Raises:
            JobNotFoundError: its record was removed.
        """
        (parts,) = await self._queue.read([self.id])
        self._read(self._queue.name, parts)
        return self

    async def result(self, timeout_seconds: float | None = None) -> Any:
        """Wait until the job has ended, and return its result.

        Any number of waiters of a queue object share one connection.

        Args:
            timeout_seconds: how long to wait; None waits without end, 0 only looks.

        Returns:
            What the worker completed it with; None if that was nothing.

        Raises:
            TimeoutError: it has not ended in time; it runs on.
            JobFailedError: it failed for good.
            JobCancelledError: it was cancelled.
            JobNotFoundError: its record was removed.
        """
        if not self.is_ended:
            if timeout_seconds is not None:
                checks.not_negative("timeout_seconds", timeout_seconds)
            deadline = math.inf if timeout_seconds is None else elapsed_clock() + timeout_seconds
            self._read(self._queue.name, await self._queue.read_ended(self.id, deadline))
        if self.status == "failed":
            raise JobFailedError(
                f"job {self.id!r} failed after {self.attempts} attempts ({self.last_error_type or 'no error type'}); "
                "its last error is in `error`, and redrive() enqueues it again",
                job_id=self.id,
                attempts=self.attempts,
                error_type=self.last_error_type or "",
                error=self.last_error or "",
            ).locate(queue=self._queue.name)
        if self.status == "cancelled":
            raise JobCancelledError(f"job {self.id!r} was cancelled", job_id=self.id).locate(queue=self._queue.name)
        return self.stored_result

    async def cancel(self) -> JobStatus:
        """Remove the job if it waits, or ask its worker to stop; see `RedisJobQueue.cancel`.

        Returns:
            The job's status after that: `cancelled`, `running` when its worker was asked, or how it had ended before.

        Raises:
            JobNotFoundError: its record was removed.
        """
        await self._queue.cancel([self.id])
        await self.refresh()
        return self.status
