"""Jobs are shown by their ids, listed by their status, updated by their consumer and asked to stop."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import ceil
from typing import Any

from sluicegate.core import scripts
from sluicegate.core.call import Call, Operation
from sluicegate.core.keys import QueueKeys

__all__ = [
    "JobParts",
    "JobUpdate",
    "cancel_job_call",
    "keep_jobs_call",
    "list_jobs_call",
    "list_jobs_operation",
    "peek_jobs_call",
    "peek_jobs_operation",
    "update_job_call",
]

_MAX_BYTES = 4 * 1024 * 1024
_PAGE_SIZE = 500
_MAX_SCANNED = 2000


@dataclass(frozen=True, slots=True)
class JobParts:
    """The stored parts of one job; None for what is not stored.

    Attributes:
        id: of the job.
        enqueued: the record of its enqueue, "" when only the status was asked for.
        state: the record of its last transition; None while it waits.
        cancel_asked: when its cancellation was asked for.
        result: its result.
        progress: its progress.
    """

    id: str
    enqueued: bytes | None = field(repr=False)
    state: bytes | None = field(repr=False)
    cancel_asked: bytes | None = None
    result: bytes | None = field(default=None, repr=False)
    progress: bytes | None = field(default=None, repr=False)

    @property
    def is_known(self) -> bool:
        """Return whether anything is stored of the job."""
        return self.enqueued is not None or self.state is not None


@dataclass(frozen=True, slots=True)
class JobUpdate:
    """The answer to an update.

    Attributes:
        is_lost: whether the consumer no longer holds the job, so that nothing was stored.
        cancel_asked: whether somebody asked to cancel the job.
    """

    is_lost: bool
    cancel_asked: bool


def peek_jobs_call(
    keys: QueueKeys, ids: Sequence[bytes], *, whole: bool = True, max_bytes: int = _MAX_BYTES
) -> Call[list[list[bytes | None]]]:
    """Prepare the call that shows the stored parts of jobs, in the order of the ids; it may end early."""
    return Call(scripts.load("peek_jobs"), (keys.tracking,), (int(whole), max_bytes, *ids), _as_is)


def list_jobs_call(
    keys: QueueKeys, status: str, *, count: int, offset: int = 0, scanned: int = _MAX_SCANNED
) -> Call[tuple[bool, int, list[bytes]]]:
    """Prepare the call that lists ids of jobs that ended with a status; answers whether all are read, and how far."""
    return Call(
        scripts.load("list_jobs"),
        (keys.tracking, keys.tracking_ended),
        (status.encode(), count, offset, scanned),
        _decode_list,
    )


def update_job_call(
    keys: QueueKeys, name: bytes, token: bytes, slot: int, job_id: bytes, *, progress: bytes, note: bytes
) -> Call[JobUpdate]:
    """Prepare the call that stores the progress of a job in a lease."""
    return Call(
        scripts.load("update_job"),
        (keys.lease(name), keys.leases, keys.tracking),
        (token, slot, job_id, progress, note),
        _decode_update,
    )


def cancel_job_call(keys: QueueKeys, job_id: bytes) -> Call[str]:
    """Prepare the call that asks the consumer of a running job to stop; answers the job's status, "" for unknown."""
    return Call(scripts.load("cancel_job"), (keys.tracking, keys.leases), (job_id,), bytes.decode)


def keep_jobs_call(keys: QueueKeys, *, ttl_seconds: float, max_ended: int) -> Call[bytes]:
    """Prepare the call that sets how long, and how many of, the records of ended jobs are kept."""
    return Call(scripts.load("keep_jobs"), (keys.tracking, keys.leases), (ceil(ttl_seconds * 1000), max_ended), bytes)


def peek_jobs_operation(keys: QueueKeys, ids: Sequence[str], *, whole: bool = True) -> Operation[list[JobParts]]:
    """Show the stored parts of jobs, one call per 500 ids or 4 MB, in the order of the ids."""
    found: list[JobParts] = []
    names = [one.encode(errors="replace") for one in ids]
    while len(found) < len(names):
        page: list[list[bytes | None]] = yield peek_jobs_call(
            keys, names[len(found) : len(found) + _PAGE_SIZE], whole=whole
        )
        found += [_parts(ids[at], parts) for at, parts in enumerate(page, len(found))]
    return found


def list_jobs_operation(keys: QueueKeys, status: str, limit: int) -> Operation[list[str]]:
    """List up to `limit` ids of jobs that ended with a status, the last to be removed first."""
    found: list[str] = []
    ended, offset = False, 0
    while not ended and len(found) < limit:
        ended, offset, page = yield list_jobs_call(
            keys, status, count=min(_PAGE_SIZE, limit - len(found)), offset=offset
        )
        found += [one.decode(errors="backslashreplace") for one in page]
    return list(dict.fromkeys(found))  # one that ended meanwhile moved the others, so that one was read twice


def _parts(job_id: str, parts: list[bytes | None]) -> JobParts:
    enqueued, state, asked, result, progress = (*parts, None, None)[:5]
    return JobParts(job_id, enqueued, state, asked, result, progress)


def _as_is(reply: list[Any]) -> list[list[bytes | None]]:
    return reply


def _decode_list(reply: list[Any]) -> tuple[bool, int, list[bytes]]:
    return bool(reply[0]), reply[1], reply[2:]


def _decode_update(reply: bytes) -> JobUpdate:
    return JobUpdate(reply == b"lost", reply == b"cancel")
