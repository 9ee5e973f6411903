"""What is known of batches and jobs that a task waits for: read by the poller of triggers, and by sensors."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sluicegate.batch_status import BatchStatus
    from sluicegate.core.call import Call

__all__ = ["BatchLook", "BatchQuestion", "JobsLook", "JobsQuestion", "read"]

_IDS_PER_CALL = 500


@dataclass(frozen=True, slots=True)
class BatchLook:
    """
    What one look at a batch found.

    :param queue_name: the name of the queue.
    :param status: the counts.
    """

    queue_name: str
    status: BatchStatus

    def value(self) -> dict[str, Any]:
        """Return the counts as XComs and events carry them."""
        status = self.status
        return {
            "queue": self.queue_name,
            "batch_id": status.batch_id,
            "total": status.total,
            "done": status.done,
            "dead": status.dead,
            "gone": status.gone,
            "completed_at": None if status.completed_at is None else status.completed_at.isoformat(),
        }

    def __str__(self) -> str:
        status = self.status
        name = f"batch {status.batch_id!r} of queue {self.queue_name!r}"
        if not status.exists:
            return f"{name} is not known: nothing was published under this id yet, or its record has been removed"
        counts = ("waiting", "delayed", "in_flight", "done", "dead", "gone")
        shown = ", ".join(f"{getattr(status, count)} {count.replace('_', ' ')}" for count in counts)
        return f"{name}: {status.total} messages, {shown}" + ("" if status.sealed else "; its publish is not finished")


@dataclass(frozen=True, slots=True)
class BatchQuestion:
    """
    Asks for the counts of a batch, at a cost that does not grow with it.

    :param queue_name: the name of the queue.
    :param batch_id: the id of the batch.
    """

    queue_name: str
    batch_id: str

    def calls(self) -> list[Call[Any]]:
        """Return the call that reads the counts."""
        from sluicegate.core.keys import QueueKeys
        from sluicegate.core.tracking import batch_name
        from sluicegate.core.transitions.batches import batch_call

        return [batch_call(QueueKeys(self.queue_name), "status", batch_name(self.batch_id))]

    def answer(self, replies: Sequence[Any]) -> BatchLook:
        """Return what was found."""
        from sluicegate.batch_status import BatchStatus

        return BatchLook(self.queue_name, BatchStatus.of(self.batch_id, replies[0]))


@dataclass(frozen=True, slots=True)
class JobsLook:
    """
    What one look at a set of jobs found.

    :param question: which jobs.
    :param statuses: the status of each, in the order of their ids; None for one that is not known.
    """

    question: JobsQuestion
    statuses: tuple[str | None, ...]

    def ids_of(self, *statuses: str | None) -> list[str]:
        """Return the ids of the jobs with one of these statuses."""
        pairs = zip(self.question.job_ids, self.statuses, strict=True)
        return [job_id for job_id, status in pairs if status in statuses]

    @property
    def has_ended(self) -> bool:
        """Return whether no job is left to wait for; one that is not known is none to wait for."""
        from sluicegate.core.tracking import ENDED_STATUSES

        return all(status is None or status in ENDED_STATUSES for status in self.statuses)

    def __str__(self) -> str:
        kinds = ("waiting", "delayed", "running", "completed", "failed", "cancelled")
        counts = ", ".join(f"{self.statuses.count(kind)} {kind}" for kind in kinds)
        unknown = self.statuses.count(None)
        return f"{len(self.statuses)} jobs of queue {self.question.queue_name!r}: {counts}" + (
            f", {unknown} not known" if unknown else ""
        )


@dataclass(frozen=True, slots=True)
class JobsQuestion:
    """
    Asks for the statuses of jobs, 500 in a call.

    :param queue_name: the name of the queue.
    :param job_ids: the ids of the jobs.
    """

    queue_name: str
    job_ids: tuple[str, ...]

    def calls(self) -> list[Call[Any]]:
        """Return the calls that read the statuses."""
        from sluicegate.core.keys import QueueKeys
        from sluicegate.core.transitions.jobs import peek_jobs_call

        keys, names = QueueKeys(self.queue_name), [one.encode(errors="replace") for one in self.job_ids]
        pages = range(0, len(names), _IDS_PER_CALL)
        return [peek_jobs_call(keys, names[at : at + _IDS_PER_CALL], whole=False) for at in pages]

    def answer(self, replies: Sequence[Any]) -> JobsLook:
        """Return what was found."""
        from sluicegate.core.tracking import JobState

        # The texts of errors stay far below what ends an answer early.
        parts = [found for page in replies for found in page]
        statuses = (
            None if enqueued is None and state is None else JobState.decode(state).status
            for enqueued, state, *_ in parts
        )
        return JobsLook(self, tuple(statuses))


def read(queue: Any, question: BatchQuestion | JobsQuestion) -> Any:
    """
    Ask once, on a worker, with the retries of a queue.

    :param queue: whose connection is used.
    :param question: what to read.
    :raises RedisUnavailableError: Redis cannot be reached.
    """
    from sluicegate.core.call import alone

    return question.answer([queue.session.runner.run(alone(call)) for call in question.calls()])
