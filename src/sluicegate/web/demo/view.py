"""What the demo's page shows: the jobs of each state, the workers and the settings."""

from __future__ import annotations

import threading
import time
from dataclasses import asdict
from typing import Any

from sluicegate.jobs import Job, RedisJobQueue
from sluicegate.message import InFlightMessage
from sluicegate.web.demo.pool import KINDS, NAME, DemoPool

__all__ = ["DemoView"]

_SHOWN = 8
_SAME_SECONDS = 0.25  # within which all viewers get the same answer


class DemoView:
    """Reads what the page shows, once for all viewers.

    Args:
        jobs: the demo's queue.
        pool: its workers.
    """

    def __init__(self, jobs: RedisJobQueue, pool: DemoPool) -> None:
        self._jobs = jobs
        self._pool = pool
        self._lock = threading.Lock()
        self._read_at = float("-inf")
        self._state: dict[str, Any] = {}

    def read(self) -> dict[str, Any]:
        """Return the state of the demo as JSON values."""
        with self._lock:
            if time.monotonic() - self._read_at > _SAME_SECONDS:
                self._state = self._look()
                self._read_at = time.monotonic()
            return self._state

    def _look(self) -> dict[str, Any]:
        jobs, stats = self._jobs, self._jobs.stats()
        held = {each.message.id: each for each in jobs.peek(4 * _SHOWN, state="in_flight")}
        running = sorted(jobs.get_many(held).values(), key=lambda job: job.claimed_at or job.enqueued_at)
        waiting = [*jobs.list("waiting", _SHOWN), *jobs.list("delayed", _SHOWN)][:_SHOWN]
        return {
            "name": NAME,
            "kinds": list(KINDS),
            "settings": asdict(self._pool.settings),
            "workers": [{"name": name, "doing": doing} for name, doing in self._pool.doing()],
            "counts": {
                "pending": stats.waiting + stats.delayed - self._expired(held),
                "processing": stats.running,
                "completed": stats.completed_jobs,
                "failed": stats.dead,
            },
            "reclaimed": stats.reclaimed_jobs,
            "jobs": {
                "pending": [self._shape(job) for job in waiting],
                "processing": [self._shape(job, held.get(job.id)) for job in running if job.status == "running"],
                "completed": [self._shape(job) for job in jobs.list("completed", _SHOWN)],
                "failed": [self._shape(job) for job in jobs.list("failed", _SHOWN)],
            },
        }

    @staticmethod
    def _expired(held: dict[str, InFlightMessage]) -> int:
        """Return how many of the jobs that count as waiting are shown as processing: their lease has expired."""
        return sum(each.expired for each in held.values())

    def _shape(self, job: Job, held: InFlightMessage | None = None) -> dict[str, Any]:
        hung_at = self._pool.hung_attempt(job.id)
        hangs = hung_at is not None and job.status == "running" and job.attempts == hung_at
        return {
            "id": job.id,
            "kind": job.kind,
            "status": job.status,
            "attempts": job.attempts,
            "progress": job.progress,
            "note": job.note,
            "worker": job.worker,
            "last_error": job.last_error,
            "deadline": None if held is None else held.deadline.timestamp(),
            "hung": hangs,
            "reclaimed": hung_at is not None and not hangs,
        }
