"""Crashes count as attempts: a job is never tried more often than its kind allows."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest
import redis
import tenacity

from sluicegate import opening
from sluicegate.errors import JobFailedError
from sluicegate.jobs import JobKind
from tests.jobs.test_work import expire
from tests.support.jobs import MakeJobs
from tests.support.servers import RedisServer
from tests.support.waiting import wait_until

ONCE = {"charge": JobKind(max_attempts=1), "email": JobKind(max_attempts=2)}


def test_an_idle_claim_takes_back_what_a_dead_worker_held(make_jobs: MakeJobs, client: redis.Redis) -> None:
    dead, idle = make_jobs(), make_jobs()
    ids = dead.enqueue_many([{"n": number} for number in range(3)]).ids
    held = dead.claim_jobs(3)
    expire(client, dead)
    lease = idle.claim_jobs(1)
    assert ([job.id for job in lease.jobs], lease.jobs[0].attempts) == (ids[:1], 2)
    assert [idle.get(one).status for one in ids] == ["running", "waiting", "waiting"]
    assert idle.stats().reclaimed_jobs == 3
    assert len(held) == 3


def test_a_waiting_claim_takes_over_when_the_timeout_of_the_kind_is_over(make_jobs: MakeJobs) -> None:
    jobs = make_jobs(default_kind=JobKind(visibility_timeout_seconds=0.2))
    made = jobs.enqueue({"n": 1})
    held = jobs.claim_jobs()
    (job,) = jobs.claim_jobs(wait_seconds=20).jobs
    assert (job.id, job.attempts, held.jobs[0].attempts) == (made, 2, 1)


def test_a_reclaim_answers_with_the_ids_of_all_expired_leases(make_jobs: MakeJobs, client: redis.Redis) -> None:
    jobs = make_jobs()
    ids = jobs.enqueue_many([{"n": number} for number in range(2600)]).ids
    held = [jobs.claim_jobs(size) for size in (1300, 1, 1200)]
    expire(client, jobs)
    live = jobs.claim_jobs(1, lease_seconds=60)  # its maintenance takes back some already
    back = jobs.reclaim_stuck()
    assert jobs.reclaim_stuck() == []
    assert set(back) <= set(ids)
    assert (jobs.depth().in_flight, len(live)) == (1, 1)
    assert jobs.stats().reclaimed_jobs == sum(map(len, held))


def test_a_reclaim_leaves_live_jobs_and_tells_only_of_those_that_came_back(
    make_jobs: MakeJobs, client: redis.Redis
) -> None:
    jobs = make_jobs()
    ids = jobs.enqueue_many([{"n": number} for number in range(1500)]).ids
    gone = jobs.claim_jobs(1200)
    expire(client, jobs)
    assert jobs.reclaim_stuck() == ids[:1200]
    live = jobs.claim_jobs(2)
    assert jobs.reclaim_stuck() == []
    assert (len(gone), [jobs.get(job.id).status for job in live.jobs]) == (1200, ["running"] * len(live))


def test_a_job_beyond_its_kinds_attempts_fails_before_a_worker_sees_it(
    make_jobs: MakeJobs, client: redis.Redis
) -> None:
    jobs = make_jobs(kinds=ONCE, default_kind=JobKind(max_attempts=5))
    charge, email, other = (jobs.enqueue({"kind": kind}) for kind in ("charge", "email", "other"))
    assert [job.id for job in jobs.claim_jobs(3).jobs] == [charge, email, other]
    expire(client, jobs)
    seen: list[str] = []
    for _ in range(8):
        expire(client, jobs)
        seen += [job.id for job in jobs.claim_jobs(3).jobs]
    assert (seen.count(charge), seen.count(email), seen.count(other)) == (0, 1, 4)
    assert [jobs.get(one).status for one in (charge, email, other)] == ["failed"] * 3
    assert "worker crashed" in jobs.get(charge).last_error
    assert (jobs.get(charge).attempts, jobs.get(email).attempts) == (2, 3), "the claim that found it out counts"
    with pytest.raises(JobFailedError) as caught:
        jobs.get(charge).result(0)
    assert (caught.value.job_id, "worker crashed" in caught.value.error) == (charge, True)


def test_a_named_lease_of_jobs_that_used_up_their_attempts_is_empty_and_ends(
    make_jobs: MakeJobs, client: redis.Redis
) -> None:
    jobs = make_jobs(kinds=ONCE, default_kind=JobKind(max_attempts=5))
    made = jobs.enqueue({"kind": "charge"})
    assert jobs.claim(1, lease_id="run-1")
    expire(client, jobs)
    again = jobs.claim(1, lease_id="run-2")
    assert (len(again), list(again.jobs), jobs.get(made).status) == (0, [], "failed")
    assert jobs.claim(1, lease_id="run-2").counts.buried == 1


def test_a_nack_of_a_last_attempt_through_a_plain_lease_fails_the_job(make_jobs: MakeJobs) -> None:
    jobs = make_jobs(kinds=ONCE, default_kind=JobKind(max_attempts=5, retry_backoff=tenacity.wait_none()))
    charge, other = jobs.enqueue({"kind": "charge"}), jobs.enqueue({"kind": "other"})
    lease = jobs.claim(2)
    lease.nack(iter(lease.messages), error="both")
    assert [jobs.get(one).status for one in (charge, other)] == ["failed", "waiting"]


@pytest.mark.parametrize(
    ("kinds", "seconds"),
    [(["email"], 120), (["video"], 1800), (["email", "video"], 1800), (["other"], 300), (["email", "other"], 300)],
    ids=str,
)
def test_a_lease_lives_as_long_as_the_longest_kind_of_its_jobs(
    make_jobs: MakeJobs, client: redis.Redis, kinds: list[str], seconds: float
) -> None:
    timeouts = {
        "email": JobKind(visibility_timeout_seconds=120),
        "video": JobKind(visibility_timeout_seconds=1800),
    }
    jobs = make_jobs(kinds=timeouts)
    jobs.enqueue_many([{"kind": kind} for kind in kinds])
    with jobs.claim_jobs(10) as lease:
        assert len(lease) == len(kinds)
        assert seconds - 5 < jobs.depth().next_expiry_seconds <= seconds
    jobs.enqueue_many([{"kind": kind} for kind in kinds])
    with jobs.claim_jobs(10, lease_seconds=50):
        assert 45 < jobs.depth().next_expiry_seconds <= 50


def test_a_spec_makes_the_same_queue_for_another_process(make_jobs: MakeJobs, server: RedisServer) -> None:
    kinds = {"email": JobKind(max_attempts=2, visibility_timeout_seconds=7, retry_backoff=tenacity.wait_fixed(9))}
    jobs = make_jobs(
        url=server.url,
        kinds=kinds,
        default_kind=JobKind(max_attempts=6),
        result_ttl_seconds=60,
        max_ended=70,
        max_pending_length=80,
    )
    spec = type(jobs.spec()).from_json(jobs.spec().to_json())
    assert (spec.kind, spec.name, set(spec.options) & {"max_delivery_count", "retry_backoff"}) == (
        "jobs",
        "work",
        set(),
    )
    with opening.open_spec(spec) as made:
        assert made.spec() == spec
        made.enqueue({"kind": "email"})
        made.claim_jobs().jobs[0].fail("no")
        assert 8 < made.depth().next_due_seconds <= 9
        assert made.session.config.max_pending_length == 80
        assert made.session.rules.max_delivery_count == 6


WORKER = """
import sys, time
from sluicegate.jobs import JobKind, RedisJobQueue
jobs = RedisJobQueue("work", url=sys.argv[1], default_kind=JobKind(visibility_timeout_seconds=1))
with jobs.claim_jobs(2) as lease:
    lease.jobs[0].update(0.5, "half")
    lease.jobs[0].complete({"by": "first"})
    print("holding", flush=True)
    time.sleep(60)
"""


def test_a_killed_worker_loses_nothing_and_repeats_only_what_it_had_not_completed(
    make_jobs: MakeJobs, server: RedisServer
) -> None:
    jobs = make_jobs(default_kind=JobKind(visibility_timeout_seconds=1))
    first, second = jobs.enqueue_many([{"n": 1}, {"n": 2}]).ids
    process = subprocess.Popen([sys.executable, "-c", WORKER, server.url], stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "holding\n"
        process.kill()
        (job,) = jobs.claim_jobs(2, wait_seconds=30).jobs
        assert (job.id, job.attempts) == (second, 2)
        job.complete({"by": "second"})
    finally:
        process.kill()
        process.wait()
        process.stdout.close()
    found = jobs.get_many([first, second])
    assert [one.stored_result for one in found.values()] == [{"by": "first"}, {"by": "second"}]
    assert found[first].progress == 0.5
    wait_until(lambda: not jobs.reclaim_stuck(), "nothing is stuck")
    assert jobs.stats().completed_jobs == 2


def test_a_shutdown_gives_jobs_back_without_counting_an_attempt(make_jobs: MakeJobs) -> None:
    worker, other = make_jobs(), make_jobs()
    made = worker.enqueue({"n": 1})
    held: Any = worker.claim_jobs()
    worker.close()
    assert (other.get(made).status, other.get(made).attempts, len(held)) == ("waiting", 0, 1)
