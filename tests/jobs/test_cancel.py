"""A cancel removes jobs that wait, and asks the workers of those that run."""

from __future__ import annotations

from typing import Any

import pytest
import redis
import tenacity

from sluicegate.errors import JobCancelledError, JobNotFoundError
from sluicegate.jobs import JobKind
from tests.jobs.test_work import expire
from tests.support.jobs import MakeJobs
from tests.support.waiting import wait_until


def test_waiting_and_delayed_jobs_are_removed(jobs: Any) -> None:
    ids = jobs.enqueue_many([{"n": number} for number in range(4)]).ids
    later = jobs.enqueue({"n": 5}, delay_seconds=600)
    assert jobs.cancel([ids[1], later, "unknown"]) == [ids[1], later]
    found = jobs.get(ids[1])
    assert (found.status, found.is_ended, found.attempts) == ("cancelled", True, 0)
    assert found.ended_at is not None
    with pytest.raises(JobCancelledError) as caught:
        found.result()
    assert caught.value.job_id == ids[1]
    assert [job.id for job in jobs.claim_jobs(10).jobs] == [ids[0], ids[2], ids[3]]
    assert jobs.stats().cancelled_jobs == 2
    assert {job.id for job in jobs.list("cancelled")} == {ids[1], later}


def test_one_id_may_be_given_by_itself(jobs: Any) -> None:
    made = jobs.enqueue({"n": 1})
    assert jobs.cancel(made) == [made]
    assert jobs.cancel(made) == [], "it has ended"
    assert jobs.cancel([]) == []


@pytest.mark.parametrize("learns", ["update", "extend", "heartbeat"])
def test_a_running_job_is_asked_to_stop_and_may_heed_it(make_jobs: MakeJobs, learns: str) -> None:
    jobs = make_jobs(heartbeat_interval_seconds=0.05 if learns == "heartbeat" else None)
    made, other = jobs.enqueue_many([{"n": 1}, {"n": 2}]).ids
    with jobs.claim_jobs(2) as lease:
        job, neighbour = lease.jobs
        assert jobs.cancel([made]) == [made]
        assert (jobs.get(made).status, jobs.get(made).cancel_requested, job.cancel_requested) == (
            "running",
            True,
            False,
        )
        if learns == "update":
            assert job.update(0.5) is True
        elif learns == "extend":
            lease.extend()
        wait_until(lambda: job.cancel_requested, "the heartbeat tells it", 20)
        assert neighbour.cancel_requested is False
        job.cancel()
    assert [jobs.get(one).status for one in (made, other)] == ["cancelled", "completed"]
    assert jobs.stats().cancelled_jobs == 1
    with pytest.raises(JobCancelledError):
        jobs.get(made).result()


def test_a_running_job_may_complete_in_spite_of_the_request(jobs: Any) -> None:
    made = jobs.enqueue({"n": 1})
    (job,) = jobs.claim_jobs().jobs
    jobs.cancel([made])
    job.complete("done")
    assert jobs.get(made).result() == "done"


@pytest.mark.parametrize("how", ["fail", "release", "crash"])
def test_a_job_that_was_to_be_cancelled_is_not_tried_again(make_jobs: MakeJobs, client: redis.Redis, how: str) -> None:
    jobs = make_jobs(default_kind=JobKind(retry_backoff=tenacity.wait_none()))
    made, other = jobs.enqueue_many([{"n": 1}, {"n": 2}]).ids
    (job,) = jobs.claim_jobs().jobs
    jobs.cancel([made])
    if how == "fail":
        job.fail("no")
    elif how == "release":
        job.release()
    else:
        expire(client, jobs)
    assert [job.id for job in jobs.claim_jobs(5).jobs] == [other]
    assert (jobs.get(made).status, jobs.depth().ready) == ("cancelled", 0)


def test_a_handle_cancels_its_job_and_says_what_came_of_it(jobs: Any) -> None:
    waiting, running, done = jobs.enqueue_many([{"n": number} for number in range(3)]).ids
    jobs.cancel(waiting)
    lease = jobs.claim_jobs(2)
    lease.jobs[1].complete()
    assert [jobs.get(one).cancel() for one in (waiting, running, done)] == ["cancelled", "running", "completed"]
    assert jobs.get(done).cancel_requested is False


def test_an_unknown_job_has_no_handle(jobs: Any) -> None:
    with pytest.raises(JobNotFoundError, match="unknown") as caught:
        jobs.get("nobody-0")
    assert (caught.value.job_id, caught.value.queue) == ("nobody-0", "work")
    assert jobs.get_many(["nobody-0", "é\ud800"]) == {}
    assert jobs.cancel(["nobody-0", "é\ud800"]) == []


@pytest.mark.parametrize("ids", [5, [5], None])
def test_ids_that_are_no_texts_are_refused(jobs: Any, ids: Any) -> None:
    with pytest.raises(TypeError):
        jobs.cancel(ids)
    with pytest.raises(TypeError):
        jobs.get_many(ids)
    with pytest.raises(TypeError):
        jobs.get_many("one")


def test_a_cancelled_jobs_deduplication_key_is_free(make_jobs: MakeJobs) -> None:
    jobs = make_jobs(get_deduplication_key="n")
    first = jobs.enqueue({"n": 1})
    jobs.cancel(first)
    assert jobs.enqueue({"n": 1}) != first
