"""A worker completes its jobs, fails them, gives them back, or is too late."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from typing import Any

import pytest
import redis
import tenacity

from sluicegate.errors import AlreadySettledError, LeaseLostError, PayloadTooLargeError
from sluicegate.jobs import JobKind
from tests.support.jobs import MakeJobs

AT_ONCE = tenacity.wait_none()
RESULT = {"sent_at": "2026-05-11T15:00:00Z", "tries": [1, 2.5, None, True]}


def expire(client: redis.Redis, jobs: Any) -> None:
    """Let all leases of a queue be over, as if their workers had been silent for too long."""
    key = jobs.session.keys.leases
    for name in client.zrange(key, 0, -1):
        client.zadd(key, {name: 1}, xx=True)


def fail_in_the_block(jobs: Any, number: int) -> None:
    """Complete jobs, and raise at this one."""
    with jobs.claim_jobs(3) as lease:
        for position, job in enumerate(lease.jobs):
            if position == number:
                raise RuntimeError("boom")
            job.complete()


def test_a_job_runs_and_is_completed_with_its_result(make_jobs: MakeJobs) -> None:
    jobs = make_jobs(worker="worker-1")
    made = jobs.enqueue({"n": 1})
    lease = jobs.claim_jobs()
    (claimed,) = lease.jobs
    running = jobs.get(made)
    assert (running.status, running.attempts, running.worker, running.lease_id) == ("running", 1, "worker-1", lease.id)
    assert running.enqueued_at <= running.claimed_at <= datetime.now(UTC) + timedelta(seconds=60)
    assert (claimed.id, claimed.attempts, claimed.payload) == (made, 1, {"n": 1})
    assert claimed.complete(RESULT) is None
    done = jobs.get(made)
    assert (done.status, done.attempts, done.stored_result, done.result()) == ("completed", 1, RESULT, RESULT)
    assert running.claimed_at == done.claimed_at <= done.ended_at
    assert (jobs.depth().in_flight, jobs.depth().ready) == (0, 0)


@pytest.mark.parametrize("result", [None, 0, False, "", "text", [1], {}, 1.5])
def test_any_json_value_is_a_result(jobs: Any, result: Any) -> None:
    made = jobs.enqueue({"n": 1})
    jobs.claim_jobs().jobs[0].complete(result)
    found = jobs.get(made).result()
    assert (found, type(found)) == (result, type(result))


def test_a_batch_is_completed_in_one_call_with_a_result_each(jobs: Any, client: redis.Redis) -> None:
    ids = jobs.enqueue_many([{"n": number} for number in range(300)]).ids
    lease = jobs.claim_jobs(300)
    client.config_resetstat()
    lease.complete_many({job: {"n": job.payload["n"], "half": job.payload["n"] % 2 == 0} for job in lease.jobs})
    calls = client.info("commandstats")["cmdstat_evalsha"]["calls"]
    found = jobs.get_many(ids)
    assert calls <= 2, "one, and one more where the script was not loaded"
    assert [job.result() for job in found.values()] == [{"n": n, "half": n % 2 == 0} for n in range(300)]


def test_a_block_completes_what_has_no_verdict(jobs: Any) -> None:
    first, second, third = jobs.enqueue_many([{"n": number} for number in range(3)]).ids
    with jobs.claim_jobs(3) as lease:
        for job in lease.jobs:
            if job.payload["n"] == 0:
                job.complete({"own": True})
            elif job.payload["n"] == 1:
                job.fail("no", retry=False)
    assert [jobs.get(one).status for one in (first, second, third)] == ["completed", "failed", "completed"]
    assert [jobs.get(one).stored_result for one in (first, third)] == [{"own": True}, None]


@pytest.mark.parametrize(
    ("result", "where"),
    [
        ({"a": {"b": {1}}}, r"\$\.a\.b"),
        ([0, float("inf")], r"\$\[1\]"),
        ({"at": date(2026, 1, 1)}, r"\$\.at"),
        (b"x", r"\$"),
    ],
    ids=str,
)
def test_a_result_that_json_cannot_carry_is_refused_with_its_path_and_can_be_given_again(
    jobs: Any, result: Any, where: str
) -> None:
    made = jobs.enqueue({"n": 1})
    (job,) = jobs.claim_jobs().jobs
    with pytest.raises((TypeError, ValueError), match=where) as caught:
        job.complete(result)
    assert any(made in note for note in caught.value.__notes__)
    job.complete({"fine": True})
    assert jobs.get(made).result() == {"fine": True}


def test_a_result_may_be_written_by_the_queues_json_default(make_jobs: MakeJobs) -> None:
    jobs = make_jobs(json_default="iso")
    made = jobs.enqueue({"n": 1})
    jobs.claim_jobs().jobs[0].complete({"at": date(2026, 1, 1)})
    assert jobs.get(made).result() == {"at": "2026-01-01"}


def test_a_result_that_is_too_large_is_refused(make_jobs: MakeJobs) -> None:
    jobs = make_jobs(max_result_bytes=10)
    made = jobs.enqueue({"n": 1})
    (job,) = jobs.claim_jobs().jobs
    with pytest.raises(PayloadTooLargeError, match="max_result_bytes=10"):
        job.complete("x" * 9)
    job.complete("x" * 8)
    assert jobs.get(made).result() == "x" * 8


def test_a_failed_attempt_is_repeated_after_its_kinds_pause_until_no_attempt_is_left(make_jobs: MakeJobs) -> None:
    jobs = make_jobs(
        kinds={"email": JobKind(max_attempts=2, retry_backoff=tenacity.wait_fixed(600)), "web": JobKind(max_attempts=1)}
    )
    email, web = jobs.enqueue({"kind": "email"}), jobs.enqueue({"kind": "web"})
    lease = jobs.claim_jobs(2)
    for job in lease.jobs:
        job.fail(OSError(f"smtp timeout of {job.kind}"))
    waits, failed = jobs.get(email), jobs.get(web)
    assert (waits.status, waits.attempts, waits.last_error) == ("delayed", 1, "smtp timeout of email")
    assert waits.last_error_type == "OSError"
    assert (failed.status, failed.attempts, failed.last_error) == ("failed", 1, "smtp timeout of web")
    assert failed.ended_at is not None
    assert 590 < jobs.depth().next_due_seconds < 601
    (dead,) = jobs.peek(state="dead")
    assert (dead.id, dead.reason, dead.error_type, dead.error) == (
        web,
        "max_attempts",
        "OSError",
        "smtp timeout of web",
    )


def test_a_job_that_fails_every_time_has_failed_with_the_last_error(make_jobs: MakeJobs) -> None:
    jobs = make_jobs(default_kind=JobKind(max_attempts=3, retry_backoff=AT_ONCE))
    made = jobs.enqueue({"n": 1})
    for number in range(3):
        (job,) = jobs.claim_jobs().jobs
        assert job.attempts == number + 1
        job.fail(f"error {number}")
    assert not jobs.claim_jobs()
    found = jobs.get(made)
    assert (found.status, found.attempts, found.last_error, found.last_error_type) == ("failed", 3, "error 2", None)
    assert jobs.stats().failed_jobs == 1


def test_a_job_fails_at_once_when_its_worker_says_so(jobs: Any) -> None:
    made = jobs.enqueue({"n": 1})
    jobs.claim_jobs().jobs[0].fail(ValueError("no such customer"), retry=False)
    assert (jobs.get(made).status, jobs.get(made).attempts) == ("failed", 1)
    (dead,) = jobs.peek(state="dead")
    assert (dead.reason, dead.error) == ("failed", "no such customer")


def test_an_error_in_the_block_fails_the_current_job_by_its_kind(make_jobs: MakeJobs) -> None:
    jobs = make_jobs(
        kinds={"once": JobKind(max_attempts=1), "slow": JobKind(retry_backoff=tenacity.wait_fixed(500))},
        default_kind=JobKind(retry_backoff=tenacity.wait_fixed(100)),
    )
    for kind, status, due in (("once", "failed", None), ("slow", "delayed", 500), ("other", "delayed", 100)):
        made = jobs.enqueue({"n": 1}, kind=kind)
        with pytest.raises(RuntimeError, match="boom"):
            fail_in_the_block(jobs, 0)
        found = jobs.get(made)
        assert (found.status, found.attempts, found.last_error_type, found.last_error) == (
            status,
            1,
            "RuntimeError",
            "boom",
        )
        if due is not None:
            assert due - 10 < jobs.depth().next_due_seconds <= due + 1
            jobs.cancel(made)


def test_an_error_in_the_block_gives_back_what_was_not_reached(jobs: Any) -> None:
    ids = jobs.enqueue_many([{"n": number} for number in range(3)]).ids
    with pytest.raises(RuntimeError):
        fail_in_the_block(jobs, 1)
    assert [jobs.get(one).status for one in ids] == ["completed", "delayed", "waiting"]
    assert [jobs.get(one).attempts for one in ids] == [1, 1, 0]


def test_a_released_job_counts_no_attempt(jobs: Any) -> None:
    made = jobs.enqueue({"n": 1})
    jobs.claim_jobs().jobs[0].release()
    assert (jobs.get(made).status, jobs.get(made).attempts) == ("waiting", 0)
    assert jobs.claim_jobs().jobs[0].attempts == 1


def test_a_plain_lease_completes_and_fails_jobs_too(make_jobs: MakeJobs) -> None:
    jobs = make_jobs(default_kind=JobKind(max_attempts=2, retry_backoff=AT_ONCE))
    ids = jobs.enqueue_many([{"n": number} for number in range(3)]).ids
    lease = jobs.claim(3)
    acked, nacked, buried = lease.messages
    lease.ack(acked)
    lease.nack(nacked, error="first")
    lease.bury(buried, reason="unfit", error="not mine")
    assert [jobs.get(one).status for one in ids] == ["completed", "waiting", "failed"]
    lease = jobs.claim(3)
    lease.nack(lease.messages[0], error="second")
    assert (jobs.get(ids[1]).status, jobs.get(ids[1]).last_error) == ("failed", "second")
    assert jobs.get(ids[0]).result() is None


def test_completing_twice_is_harmless_and_keeps_the_first_result(jobs: Any) -> None:
    made = jobs.enqueue({"n": 1})
    (job,) = jobs.claim_jobs().jobs
    job.complete({"first": True})
    job.complete({"first": False})
    with pytest.raises(AlreadySettledError):
        job.fail("too late")
    with pytest.raises(AlreadySettledError):
        job.update(0.5)
    assert jobs.get(made).result() == {"first": True}


def test_a_worker_that_was_reclaimed_is_refused_and_the_next_one_is_not_disturbed(
    make_jobs: MakeJobs, client: redis.Redis
) -> None:
    slow, quick = make_jobs(worker="slow"), make_jobs(worker="quick")
    made = slow.enqueue({"n": 1})
    (late,) = slow.claim_jobs().jobs
    expire(client, slow)
    (job,) = quick.claim_jobs().jobs
    assert (job.id, job.attempts) == (made, 2)
    for act in (
        lambda: late.update(0.5, "late"),
        lambda: late.complete({"by": "slow"}),
    ):
        with pytest.raises(LeaseLostError):
            act()
    assert (quick.get(made).status, quick.get(made).worker, quick.get(made).progress) == ("running", "quick", None)
    job.complete({"by": "quick"})
    with pytest.raises(LeaseLostError):
        late.complete({"by": "slow"})
    assert quick.get(made).result() == {"by": "quick"}


def test_a_late_failure_is_refused(jobs: Any, client: redis.Redis) -> None:
    made = jobs.enqueue({"n": 1})
    (late,) = jobs.claim_jobs().jobs
    expire(client, jobs)
    assert jobs.reclaim_stuck() == [made]
    with pytest.raises(LeaseLostError):
        late.fail("late")
    assert (jobs.get(made).status, jobs.get(made).last_error) == ("waiting", "lease expired while being handled")


def test_progress_is_seen_by_whoever_reads_the_job(jobs: Any) -> None:
    made = jobs.enqueue({"n": 1})
    (job,) = jobs.claim_jobs().jobs
    assert job.update(0.25, "resizing") is False
    found = jobs.get(made)
    assert (found.progress, found.note, found.status) == (0.25, "resizing", "running")
    job.update(3, "x" * 3000)
    assert (found.refresh().progress, found.note) == (3.0, "x" * 2000)
    job.complete("done")
    assert jobs.get(made).progress == 3.0


@pytest.mark.parametrize("progress", ["half", None, float("nan"), float("inf"), True])
def test_progress_is_a_number(jobs: Any, progress: Any) -> None:
    jobs.enqueue({"n": 1})
    (job,) = jobs.claim_jobs().jobs
    with pytest.raises(ValueError, match="progress"):
        job.update(progress)


def test_a_job_of_another_lease_is_refused(jobs: Any) -> None:
    jobs.enqueue_many([{"n": 1}, {"n": 2}])
    one, other = jobs.claim_jobs(), jobs.claim_jobs()
    with pytest.raises(AlreadySettledError):
        one.complete_many({one.jobs[0]: 1, other.jobs[0]: 2})
    assert jobs.stats().running == 2
    one.complete_many({one.jobs[0]: 1})
    assert jobs.stats().running == 1


def test_a_worker_whose_lease_was_taken_over_reports_and_completes_nothing(make_jobs: MakeJobs) -> None:
    first, heir = make_jobs(worker="first"), make_jobs(worker="heir")
    made = first.enqueue({"n": 1})
    (late,) = first.claim(1, lease_id="run-1").jobs
    (job,) = heir.claim(1, lease_id="run-1", take_over_after_seconds=0).jobs
    with pytest.raises(LeaseLostError):
        late.update(0.5)
    with pytest.raises(LeaseLostError):
        late.complete("late")
    found = heir.get(made)
    assert (found.status, found.worker, found.attempts, found.progress) == ("running", "heir", 2, None)
    job.complete("in time")
    assert found.result() == "in time"
