"""Whoever waits for a job gets its result, its failure, or an end of the wait."""

from __future__ import annotations

import asyncio
import threading
import time
from typing import Any

import pytest
import redis

from sluicegate._notices_base import READERS
from sluicegate.asyncio import jobs as asynchronous
from sluicegate.errors import BatchChangedError, ConfigurationError, JobCancelledError, JobFailedError, JobNotFoundError
from sluicegate.jobs import RedisJobQueue
from tests.support.jobs import MakeJobs
from tests.support.servers import RedisServer
from tests.support.waiting import wait_until


def in_a_thread(act: Any) -> tuple[threading.Thread, list[Any]]:
    """Start a call in a thread; returns the thread and the list that will hold its answer or its error."""
    found: list[Any] = []

    def run() -> None:
        try:
            found.append(act())
        except Exception as error:
            found.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    return thread, found


def test_a_waiter_gets_the_result_as_soon_as_there_is_one(make_jobs: MakeJobs) -> None:
    jobs, worker = make_jobs(), make_jobs()
    handle = jobs.get(jobs.enqueue({"n": 1}))
    thread, found = in_a_thread(lambda: handle.result(30))
    (job,) = worker.claim_jobs(wait_seconds=10).jobs
    job.update(0.5)
    assert thread.is_alive()
    begun = time.monotonic()
    job.complete({"answer": 42})
    thread.join(20)
    assert found == [{"answer": 42}]
    assert time.monotonic() - begun < 5, "it does not wait for the next look"
    assert (handle.status, handle.attempts) == ("completed", 1), "the handle was read again"


@pytest.mark.parametrize(
    ("end", "expected"),
    [
        (lambda jobs, job: job.fail(OSError("down"), retry=False), JobFailedError),
        (lambda jobs, job: job.cancel(), JobCancelledError),
    ],
    ids=["failed", "cancelled"],
)
def test_a_waiter_learns_that_there_will_be_no_result(make_jobs: MakeJobs, end: Any, expected: type) -> None:
    jobs, worker = make_jobs(), make_jobs()
    made = jobs.enqueue({"n": 1})
    thread, found = in_a_thread(lambda: jobs.get(made).result(30))
    end(worker, worker.claim_jobs().jobs[0])
    thread.join(20)
    (error,) = found
    assert type(error) is expected
    assert (error.job_id, error.queue) == (made, "work")
    if expected is JobFailedError:
        assert (error.attempts, error.error_type, error.error) == (1, "OSError", "down")
        assert "down" not in str(error), "errors may quote payloads, so the text of ours does not"


def test_a_wait_ends_in_time(jobs: Any) -> None:
    made = jobs.enqueue({"n": 1})
    begun = time.monotonic()
    with pytest.raises(TimeoutError, match=made):
        jobs.get(made).result(0)
    with pytest.raises(TimeoutError, match="2 jobs"):
        jobs.wait([made, jobs.enqueue({"n": 2})], 0.2)
    assert time.monotonic() - begun < 5
    assert jobs.get(made).status == "waiting"


@pytest.mark.parametrize("timeout", [-1, "1", float("nan")])
def test_a_timeout_is_a_number_of_seconds(jobs: Any, timeout: Any) -> None:
    made = jobs.enqueue({"n": 1})
    with pytest.raises(ConfigurationError, match="timeout_seconds"):
        jobs.get(made).result(timeout)


def test_several_jobs_are_waited_for_together(make_jobs: MakeJobs) -> None:
    jobs, worker = make_jobs(), make_jobs()
    ids = jobs.enqueue_many([{"n": number} for number in range(6)]).ids
    thread, found = in_a_thread(lambda: jobs.wait(ids[::-1], 30))
    for size in (1, 2, 3):
        lease = worker.claim_jobs(size)
        lease.complete_many({job: job.payload["n"] for job in lease.jobs})
    thread.join(20)
    assert list(found[0]) == ids[::-1]
    assert [job.stored_result for job in found[0].values()] == [5, 4, 3, 2, 1, 0]
    assert jobs.wait([]) == {}


def test_an_unknown_job_is_not_waited_for(jobs: Any) -> None:
    with pytest.raises(JobNotFoundError):
        jobs.wait(["nobody-0"], 30)


def test_a_wait_ends_when_the_queue_object_is_closed(make_jobs: MakeJobs, client: redis.Redis) -> None:
    jobs = make_jobs()
    handle = jobs.get(jobs.enqueue({"n": 1}))
    thread, found = in_a_thread(lambda: handle.result(60))
    wait_until(lambda: "xread" in [one["cmd"] for one in client.client_list()], "the thread waits", 20)
    jobs.shutdown(0)
    wait_until(lambda: not thread.is_alive(), "the wait has ended", 20)
    assert isinstance(found[0], TimeoutError)
    assert "stopping" in str(found[0])


@pytest.mark.parametrize("waiters", [200, pytest.param(2000, marks=pytest.mark.full)])
def test_thousands_of_tasks_wait_on_one_connection(server: RedisServer, client: redis.Redis, waiters: int) -> None:
    before = len(client.client_list())  # those of earlier tests may still be there

    async def steps() -> tuple[list[Any], int, int]:
        async with asynchronous.RedisJobQueue("work", url=server.url) as jobs:
            report = await jobs.enqueue_many([{"n": number} for number in range(waiters)])
            handles = (await jobs.get_many(report.ids)).values()
            waiting = [asyncio.create_task(handle.result(60)) for handle in handles]
            await until_following(client)
            connections = count_following(client)
            most = len(client.client_list()) - before
            while lease := await jobs.claim_jobs(500):
                await lease.complete_many({job: job.payload["n"] for job in lease.jobs})
            return await asyncio.gather(*waiting), connections, most

    results, connections, most = asyncio.run(steps())
    assert results == list(range(waiters))
    assert connections == 1
    assert most <= READERS + 4, "nor do the reads of many waiters need a connection each"


async def until_following(client: redis.Redis) -> None:
    """Wait until somebody follows the notifications."""
    deadline = time.monotonic() + 30
    while not count_following(client):
        assert time.monotonic() < deadline
        await asyncio.sleep(0.01)


def count_following(client: redis.Redis) -> int:
    """Return how many connections wait for notifications."""
    return sum(one["cmd"] == "xread" for one in client.client_list())


def test_threads_wait_on_one_connection(server: RedisServer, client: redis.Redis) -> None:
    with RedisJobQueue("work", url=server.url) as jobs:
        ids = jobs.enqueue_many([{"n": number} for number in range(60)]).ids
        waiting = [in_a_thread(jobs.get(one).result) for one in ids]
        wait_until(lambda: count_following(client), "somebody follows the notifications", 20)
        assert count_following(client) == 1
        lease = jobs.claim_jobs(60)
        lease.complete_many({job: job.payload["n"] for job in lease.jobs})
        for thread, _ in waiting:
            thread.join(20)
        assert [found for _, found in waiting] == [[number] for number in range(60)]


def test_a_batch_of_jobs_is_waited_for_and_a_repeat_has_the_same_jobs(make_jobs: MakeJobs) -> None:
    jobs, worker = make_jobs(), make_jobs()
    payloads = [{"kind": ["a", "b"][number % 2], "n": number} for number in range(1500)]
    report = jobs.enqueue_many(payloads, batch_id="import-7")
    assert (report.accepted, report.batch_id, len(set(report.ids))) == (1500, "import-7", 1500)
    again = make_jobs().enqueue_many(payloads, batch_id="import-7")
    assert (again.ids, again.accepted) == (report.ids, 1500)
    assert jobs.depth().ready == 1500
    batch = jobs.get_batch("import-7")
    thread, found = in_a_thread(lambda: batch.wait(60))
    while lease := worker.claim_jobs(600):
        first, *others = lease.jobs
        first.fail("no", retry=False)
        lease.complete_many({job: job.payload["n"] for job in others})
    thread.join(60)
    (status,) = found
    assert (status.is_complete, status.total, status.done, status.dead) == (True, 1500, 1497, 3)
    done = jobs.get_many(report.ids)
    assert [job.kind for job in done.values()] == [payload["kind"] for payload in payloads]
    assert sum(job.status == "completed" for job in done.values()) == 1497
    assert all(job.stored_result == job.payload["n"] for job in done.values() if job.status == "completed")


def test_a_batch_with_other_jobs_is_refused(jobs: Any) -> None:
    jobs.enqueue_many([{"n": 1}], batch_id="import-7")
    with pytest.raises(BatchChangedError):
        jobs.enqueue_many([{"n": 1}, {"n": 2}], batch_id="import-7")
    with pytest.raises(ConfigurationError, match="partial"):
        jobs.enqueue_many([{"n": 1}], batch_id="import-8", partial=True)
    batch = jobs.batch([{"n": 3}])
    jobs.cancel(batch.report.ids)
    assert (batch.status().gone, batch.status().is_complete) == (1, True)
