"""Routes of job lists: jobs by status, with their progress, and cancelling them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from datetime import datetime
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Body, Depends, Query
from starlette.responses import Response

from sluicegate.core.tracking import JobStatus
from sluicegate.jobs import Job, JobStats
from sluicegate.web.answers import answer, encoded
from sluicegate.web.masking import Masked, Masks
from sluicegate.web.page import Named, found_place

__all__ = ["router"]

_STATUSES: tuple[JobStatus, ...] = ("running", "waiting", "delayed", "failed", "completed", "cancelled")
_MAX_SHOWN = 64 * 1024
_COUNTS = ("enqueued_jobs", "completed_jobs", "failed_jobs", "cancelled_jobs", "reclaimed_jobs")

router = APIRouter()
Where = Annotated[Named, Depends(found_place)]


@router.get("/api/jobs")
def jobs(
    where: Where,
    status: Literal["waiting", "delayed", "running", "completed", "failed", "cancelled"] | None = None,
    count: Annotated[int, Query(ge=1, le=500)] = 50,
) -> Response:
    """Return jobs by their status, or some of each, and the totals of the list."""
    where.needs("jobs")
    queue, masks = where.open(), where.page.masks
    found: list[Job] = []
    for each in _STATUSES if status is None else (status,):
        found += queue.list(each, count)
    return answer({"jobs": [_job(job, masks) for job in found], "stats": _stats(queue.stats())})


@router.post("/api/jobs/cancel")
def cancel(where: Where, ids: Annotated[list[str], Body(embed=True, max_length=1000)]) -> Response:
    """Remove jobs that wait, and ask the workers of those that run to stop."""
    where.needs("jobs")
    return answer({"cancelled": where.open().cancel(ids)})


def _job(job: Job, masks: Masks) -> dict[str, Any]:
    payload = masks.payload(_stored(job.payload))
    result = None if job.stored_result is None else masks.payload(_stored(job.stored_result))
    texts = [payload] if result is None else [payload, result]
    return {
        "id": job.id,
        "kind": job.kind,
        "status": job.status,
        "attempts": job.attempts,
        "progress": job.progress,
        "note": _redacted(job.note, texts),
        "worker": job.worker,
        "lease_id": job.lease_id,
        "enqueued_at": job.enqueued_at.timestamp(),
        "claimed_at": _epoch(job.claimed_at),
        "ended_at": _epoch(job.ended_at),
        "last_error": _redacted(job.last_error, texts),
        "last_error_type": job.last_error_type,
        "cancel_requested": job.cancel_requested,
        "payload": payload.text[:_MAX_SHOWN],
        "result": None if result is None else result.text[:_MAX_SHOWN],
    }


def _stored(value: Any) -> bytes:
    return encoded(value)


def _stats(stats: JobStats) -> dict[str, Any]:
    counts = {field.name: getattr(stats, field.name) for field in fields(stats)}
    return counts | {name: getattr(stats, name) for name in _COUNTS}


def _redacted(text: str | None, texts: Sequence[Masked]) -> str | None:
    for masked in texts:
        text = None if text is None else masked.redact(text)
    return text


def _epoch(at: datetime | None) -> float | None:
    return None if at is None else at.timestamp()
