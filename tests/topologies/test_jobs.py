"""What a queue of jobs does on every way of reaching Redis: its records have the slot of the queue's name."""

from __future__ import annotations

import threading
from typing import Any

import pytest
import tenacity

from sluicegate.errors import JobCancelledError, JobFailedError, LeaseLostError
from sluicegate.jobs import JobKind
from tests.topologies.ways import QueueMaker

KINDS = {"email": JobKind(max_attempts=2, retry_backoff=tenacity.wait_none())}


def test_a_job_is_tried_again_until_it_has_a_result_or_has_failed(make: QueueMaker) -> None:
    jobs = make.jobs("a:{b}", kinds=KINDS)
    good, bad = jobs.enqueue_many([{"kind": "email", "n": number} for number in range(2)]).ids
    for job in jobs.claim_jobs(2).jobs:
        job.update(0.5, "trying")
        job.fail(OSError("busy"))
    while lease := jobs.claim_jobs(2):
        for job in lease.jobs:
            assert job.attempts == 2
            job.complete({"name": "Grüße"}) if job.id == good else job.fail(OSError("down"))
    assert jobs.get(good).result() == {"name": "Grüße"}
    assert (jobs.get(good).progress, jobs.get(good).last_error) == (0.5, "busy")
    assert (jobs.get(bad).status, jobs.get(bad).last_error) == ("failed", "down")
    with pytest.raises(JobFailedError):
        jobs.get(bad).result(0)


def test_a_waiter_a_cancel_and_a_late_worker(make: QueueMaker) -> None:
    jobs, other = make.jobs(), make.jobs()
    waited, running, waiting = jobs.enqueue_many([{"n": number} for number in range(3)]).ids
    found: list[Any] = []
    thread = threading.Thread(target=lambda: found.append(jobs.get(waited).result(60)))
    thread.start()
    lease = other.claim_jobs(2)
    assert other.cancel([running, waiting]) == [running, waiting]
    first, second = lease.jobs
    first.complete([1, 2])
    assert second.update(0.5) is True
    second.cancel()
    thread.join(30)
    assert found == [[1, 2]]
    with pytest.raises(JobCancelledError):
        jobs.get(waiting).result()
    assert [job.id for job in jobs.list("completed")] == [waited]
    assert {job.id for job in jobs.list("cancelled")} == {running, waiting}
    assert jobs.stats().cancelled_jobs == 2


def test_a_batch_of_jobs_is_complete_when_all_have_ended(make: QueueMaker) -> None:
    jobs = make.jobs()
    report = jobs.enqueue_many([{"n": number} for number in range(5)], batch_id="{b}:1")
    assert jobs.enqueue_many([{"n": number} for number in range(5)], batch_id="{b}:1").ids == report.ids
    late = jobs.claim_jobs(5, lease_seconds=0.05)
    lease = jobs.claim_jobs(5, wait_seconds=20)
    with pytest.raises(LeaseLostError):
        late.jobs[0].complete("late")
    while lease:
        lease.complete_many({job: job.payload["n"] for job in lease.jobs})
        lease = jobs.claim_jobs(5)
    assert jobs.get_batch("{b}:1").status().is_complete
    assert [job.stored_result for job in jobs.get_many(report.ids).values()] == [0, 1, 2, 3, 4]
