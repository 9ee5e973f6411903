"""Jobs on Redis: enqueued with an id, tried by workers, and waited for until they have a result."""

from sluicegate.asyncio.jobs.handle import Job
from sluicegate.asyncio.jobs.lease import ClaimedJob, JobLease
from sluicegate.asyncio.jobs.queue import RedisJobQueue
from sluicegate.core.tracking import JobStatus
from sluicegate.jobs.kind import JobKind
from sluicegate.jobs.view import EnqueueReport, JobStats

__all__ = ["ClaimedJob", "EnqueueReport", "Job", "JobKind", "JobLease", "JobStats", "JobStatus", "RedisJobQueue"]
