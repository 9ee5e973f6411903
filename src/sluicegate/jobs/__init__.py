# Made from src/sluicegate/asyncio/jobs/__init__.py by `make format`; edit there.
"""Jobs on Redis: enqueued with an id, tried by workers, and waited for until they have a result."""

from sluicegate.core.tracking import JobStatus
from sluicegate.jobs.handle import Job
from sluicegate.jobs.kind import JobKind
from sluicegate.jobs.lease import ClaimedJob, JobLease
from sluicegate.jobs.queue import RedisJobQueue
from sluicegate.jobs.view import EnqueueReport, JobStats

__all__ = ["ClaimedJob", "EnqueueReport", "Job", "JobKind", "JobLease", "JobStats", "JobStatus", "RedisJobQueue"]
