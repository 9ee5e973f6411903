"""What is known of a job, and what a queue of jobs reports: values without I/O."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from sluicegate.core import json
from sluicegate.core.tracking import JobRecord, JobState, JobStatus, Progress
from sluicegate.core.transitions.jobs import JobParts
from sluicegate.core.transitions.stats import QueueStats
from sluicegate.errors import JobNotFoundError, OptionTypeError
from sluicegate.report import PublishReport

__all__ = ["EnqueueReport", "JobBase", "JobStats", "check_ids", "late_error", "status_of", "unknown_job"]

_LATEST_MS = 253_402_300_799_000  # the year 9999
_NO_STATE = JobState()
_NO_RECORD = JobRecord("", 0, b"")
_NO_PROGRESS = Progress(0.0, 0, "")


class JobBase:
    """A job as it was when it was last read.

    Attributes:
        id: the job's id.
    """

    __slots__ = ("_progress", "_record", "_result", "_state", "cancel_requested", "id")

    def __init__(self, queue: str, parts: JobParts) -> None:
        self.id = parts.id
        self._read(queue, parts)

    def _read(self, queue: str, parts: JobParts) -> None:
        """Take over what is stored now.

        Raises:
            JobNotFoundError: nothing is.
        """
        if not parts.is_known:
            raise unknown_job(queue, parts.id)
        self._record = _NO_RECORD if parts.enqueued is None else JobRecord.decode(parts.enqueued)
        self._state = _NO_STATE if parts.state is None else JobState.decode(parts.state)
        self._progress = None if parts.progress is None else Progress.decode(parts.progress)
        self._result = parts.result
        self.cancel_requested = parts.cancel_asked is not None

    @property
    def status(self) -> JobStatus:
        """Return `waiting`, `delayed`, `running`, `completed`, `failed` or `cancelled`."""
        return self._state.status

    @property
    def is_ended(self) -> bool:
        """Return whether the job is completed, failed or cancelled."""
        return self._state.is_ended

    @property
    def attempts(self) -> int:
        """Return the number of attempts begun."""
        return self._state.attempts

    @property
    def kind(self) -> str:
        """Return the job's kind; `default` for none."""
        return self._record.kind

    @property
    def payload(self) -> Any:
        """Return the payload, decoded at each access."""
        return json.loads(self._record.payload)

    @property
    def enqueued_at(self) -> datetime:
        """Return when the job was enqueued, by the server's clock."""
        return _time(self._record.enqueued_ms)

    @property
    def claimed_at(self) -> datetime | None:
        """Return when its last attempt began; None before the first."""
        return _time(self._state.claimed_ms) if self._state.claimed_ms else None

    @property
    def ended_at(self) -> datetime | None:
        """Return when it was completed, failed or cancelled; None before that."""
        return _time(self._state.ended_ms) if self._state.ended_ms else None

    @property
    def worker(self) -> str | None:
        """Return the consumer that claimed it last; None before the first claim."""
        return self._state.worker or None

    @property
    def lease_id(self) -> str | None:
        """Return the lease that it was last in; None before the first claim."""
        return self._state.lease_id or None

    @property
    def last_error(self) -> str | None:
        """Return the text of its last failed attempt's error; None without one."""
        return self._state.error or None

    @property
    def last_error_type(self) -> str | None:
        """Return the class of its last failed attempt's error; None without one."""
        return self._state.error_type or None

    @property
    def progress(self) -> float | None:
        """Return how far its worker said that it has come; None before that."""
        return None if self._progress is None else self._progress.progress

    @property
    def note(self) -> str:
        """Return what its worker noted with the progress."""
        return "" if self._progress is None else self._progress.note

    @property
    def stored_result(self) -> Any:
        """Return the result of a completed job, decoded at each access; None before that."""
        return None if not self._result else json.loads(self._result)

    def __repr__(self) -> str:
        return f"{type(self).__name__}(id={self.id!r}, status={self.status}, attempts={self.attempts})"


@dataclass(frozen=True, slots=True)
class JobStats(QueueStats):
    """Totals of a queue of jobs since its creation, and how many jobs are in which state now.

    Attributes:
        waiting: jobs that a worker may claim: never claimed, returned, due, or of a worker that died.
        delayed: jobs that wait for their time, or for their next attempt.
        running: jobs that a worker holds.
        dead: failed jobs that `redrive` would enqueue again.
    """

    waiting: int = 0
    delayed: int = 0
    running: int = 0
    dead: int = 0

    @property
    def enqueued_jobs(self) -> int:
        """Return the number of jobs enqueued so far."""
        return self.published

    @property
    def completed_jobs(self) -> int:
        """Return the number of jobs completed so far."""
        return self.acked

    @property
    def failed_jobs(self) -> int:
        """Return the number of jobs that failed for good so far."""
        return self.buried

    @property
    def cancelled_jobs(self) -> int:
        """Return the number of waiting jobs cancelled so far, and of running ones whose worker stopped when asked."""
        return self.cancelled + self.discarded

    @property
    def reclaimed_jobs(self) -> int:
        """Return how often a job was taken back from a worker that was silent for too long."""
        return self.reaped


@dataclass(frozen=True, slots=True)
class EnqueueReport:
    """What became of jobs that were enqueued together.

    Attributes:
        ids: the id of each job by position; for a duplicate, that of the job which holds its deduplication key.
        accepted: jobs that were enqueued.
        duplicates: jobs whose deduplication key was held.
        refused_positions: positions of those for which `max_pending_length` left no room.
        batch_id: the batch that they belong to; None for none.
    """

    ids: list[str] = field(default_factory=list)
    accepted: int = 0
    duplicates: int = 0
    refused_positions: list[int] = field(default_factory=list)
    batch_id: str | None = None

    @classmethod
    def of(cls, report: PublishReport, batch_id: str | None = None) -> EnqueueReport:
        """Build a report from that of the messages."""
        ids = [owner or own for own, owner in zip(report.ids, report.duplicate_of, strict=True)]
        return cls(ids, report.accepted, report.duplicates, report.refused_positions, batch_id)

    def __len__(self) -> int:
        return len(self.ids)


def status_of(parts: JobParts) -> JobStatus | None:
    """Return the status of a job; None for an unknown one."""
    return JobState.decode(parts.state).status if parts.is_known else None


def unknown_job(queue: str, job_id: str) -> JobNotFoundError:
    """Return the error about a job that is not stored."""
    error = JobNotFoundError(
        f"job {job_id!r} is unknown in queue {queue!r}: it was never enqueued here, or its record has been removed "
        "since it ended; see result_ttl_seconds and max_ended",
        job_id=job_id,
    )
    return error.locate(queue=queue)


def late_error(queue: str, job_id: str, left: int, *, stopping: bool) -> TimeoutError:
    """Return the error about jobs that have not ended in time."""
    why = "this queue object is stopping" if stopping else "the time to wait is over"
    return TimeoutError(f"queue {queue!r}: {left} jobs have not ended, among them {job_id!r}; {why}")


def check_ids(ids: Iterable[str]) -> list[str]:
    """Return ids of jobs, each once, in their order.

    Raises:
        TypeError: one text instead of several, or an id of another type.
    """
    if isinstance(ids, str):
        raise OptionTypeError("ids must be several job ids, such as a list; put the one id into a list")
    wanted = list(dict.fromkeys(ids))
    for one in wanted:
        if not isinstance(one, str):
            raise OptionTypeError(f"a job id must be a str, not {type(one).__name__}")
    return wanted


def _time(ms: int) -> datetime:
    return datetime.fromtimestamp(min(ms, _LATEST_MS) / 1000, UTC)
