"""Jobs are listed and counted by status, and their records are removed in time."""

from __future__ import annotations

from typing import Any

import pytest
import redis
import tenacity

from sluicegate.errors import ConfigurationError, JobNotFoundError, MalformedStoredMessageError
from sluicegate.jobs import JobKind
from tests.support.jobs import MakeJobs
from tests.support.waiting import wait_until

STATUSES = ("waiting", "delayed", "running", "completed", "failed", "cancelled")


def complete(jobs: Any, count: int = 1) -> list[str]:
    """Enqueue and complete jobs, and return their ids."""
    ids = jobs.enqueue_many([{"n": number} for number in range(count)]).ids
    lease = jobs.claim_jobs(count)
    lease.complete_many({job: job.payload["n"] for job in lease.jobs})
    return list(ids)


def fields_of(client: redis.Redis, jobs: Any) -> set[str]:
    """Return the ids of which anything is stored."""
    names = [name.decode() for name in client.hkeys(jobs.session.keys.tracking)]
    return {name.split(":", 1)[1] for name in names if name[:2] in ("j:", "s:", "r:", "p:", "x:")}


def test_jobs_are_listed_by_status(jobs: Any) -> None:
    done = complete(jobs, 2)
    failed = jobs.enqueue({"n": 3})
    jobs.claim_jobs().jobs[0].fail("no", retry=False)
    cancelled = jobs.enqueue({"n": 4})
    jobs.cancel(cancelled)
    retried, running, first, second = jobs.enqueue_many([{"n": number} for number in range(5, 9)]).ids
    later = jobs.enqueue({"n": 9}, delay_seconds=600)
    lease = jobs.claim_jobs(2)
    lease.nack(lease.messages[0], error="again")
    found = {status: [job.id for job in jobs.list(status)] for status in STATUSES}
    assert found == {
        "waiting": [retried, first, second],
        "delayed": [later],
        "running": [running],
        "completed": found["completed"],
        "failed": [failed],
        "cancelled": [cancelled],
    }
    assert sorted(found["completed"]) == sorted(done)
    assert [job.id for job in jobs.list("waiting", limit=2)] == [retried, first]
    assert all(job.status == status for status in STATUSES for job in jobs.list(status))


def test_a_list_goes_through_thousands_of_others(jobs: Any) -> None:
    lost = jobs.enqueue({"n": -1})
    jobs.claim_jobs().jobs[0].fail("no", retry=False)
    ids = [one for _ in range(3) for one in complete(jobs, 1000)]
    assert [job.id for job in jobs.list("failed")] == [lost]
    assert len(jobs.list("completed", limit=2345)) == 2345
    assert {job.id for job in jobs.list("completed", limit=9000)} == set(ids)
    assert jobs.list("cancelled") == []


@pytest.mark.parametrize(("status", "limit"), [("done", 1), (None, 1), ("waiting", 0), ("failed", "2")])
def test_a_list_that_cannot_work_is_refused(jobs: Any, status: Any, limit: Any) -> None:
    with pytest.raises(ConfigurationError):
        jobs.list(status, limit)


def test_the_statistics_count_every_job(make_jobs: MakeJobs) -> None:
    jobs = make_jobs(default_kind=JobKind(max_attempts=2, retry_backoff=tenacity.wait_none()))
    complete(jobs, 3)
    jobs.enqueue({"n": 1})
    for _ in range(2):
        jobs.claim_jobs().jobs[0].fail("no")
    jobs.cancel(jobs.enqueue({"n": 2}))
    jobs.enqueue_many([{"n": 3}, {"n": 4}])
    jobs.enqueue({"n": 5}, delay_seconds=600)
    lease = jobs.claim_jobs()
    stats = jobs.stats()
    assert (stats.waiting, stats.delayed, stats.running, stats.dead) == (1, 1, 1, 1)
    assert (stats.enqueued_jobs, stats.completed_jobs, stats.failed_jobs, stats.cancelled_jobs) == (8, 3, 1, 1)
    assert (stats.failed, stats.nacked, stats.reclaimed_jobs, len(lease)) == (2, 1, 0, 1)


def test_a_record_is_removed_when_its_time_is_over(make_jobs: MakeJobs, client: redis.Redis) -> None:
    jobs = make_jobs(result_ttl_seconds=0.05)
    (done,) = complete(jobs)
    handle = jobs.get(done)
    assert handle.result() == 0

    def is_gone() -> bool:
        complete(jobs)  # whatever ends removes what is outdated
        return done not in fields_of(client, jobs)

    wait_until(is_gone, "the record is removed", 20)
    with pytest.raises(JobNotFoundError):
        jobs.get(done)
    with pytest.raises(JobNotFoundError):
        handle.refresh()
    assert handle.result() == 0, "the handle still has what it read"


def test_no_more_records_are_kept_than_asked_for(make_jobs: MakeJobs, client: redis.Redis) -> None:
    jobs = make_jobs(max_ended=10)
    waiting = jobs.enqueue({"n": 1}, delay_seconds=600)
    for _ in range(4):
        complete(jobs, 5)
    assert len(jobs.list("completed")) == 10
    assert len(fields_of(client, jobs)) == 11
    assert jobs.get(waiting).status == "delayed"


def test_who_enqueues_decides_what_is_kept_and_not_who_looks(make_jobs: MakeJobs, client: redis.Redis) -> None:
    producer, looker = make_jobs(result_ttl_seconds=60, max_ended=7), make_jobs()
    producer.enqueue({"n": 1})
    looker.claim_jobs().jobs[0].complete()
    looker.stats()
    assert client.hmget(producer.session.keys.tracking, "ttl_ms", "cap") == [b"60000", b"7"]


def test_a_redriven_job_waits_again_and_keeps_its_last_error(jobs: Any) -> None:
    made = jobs.enqueue({"n": 1}, kind="email")
    (job,) = jobs.claim_jobs().jobs
    job.update(0.5, "half")
    job.fail("no", retry=False)
    assert jobs.redrive().redriven == 1
    found = jobs.get(made)
    assert (found.status, found.kind, found.last_error, found.progress, found.ended_at) == (
        "waiting",
        "email",
        "no",
        None,
        None,
    )
    jobs.claim_jobs().jobs[0].complete("second time")
    assert jobs.get(made).result() == "second time"


def test_a_record_that_something_else_wrote_is_reported(jobs: Any, client: redis.Redis) -> None:
    made = jobs.enqueue({"n": 1})
    client.hset(jobs.session.keys.tracking, f"s:{made}", "nonsense")
    with pytest.raises(MalformedStoredMessageError):
        jobs.get(made)
    jobs.claim_jobs().jobs[0].complete("fine")
    assert jobs.get(made).result() == "fine"
