"""The worker on a group of a stream and on a queue of jobs."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from typing import Any

import pytest
import redis
import tenacity

from sluicegate import GroupNotFoundError, QueueEvent
from sluicegate.jobs import JobKind
from sluicegate.worker import Delivery, Reject, Retry
from tests.support.flavours import Flavour, Loop, MakeGroup, MakeStream
from tests.support.jobs import JobMaker, MakeJobs
from tests.support.waiting import wait_until
from tests.worker.conftest import MakeWorker

AT_ONCE = tenacity.wait_none()


@pytest.fixture
def make_jobs(flavour: Flavour, client: redis.Redis, loop: Loop) -> Iterator[MakeJobs]:
    """Yield what makes queues of jobs in the flavour of the test."""
    maker = JobMaker(client, loop if flavour.asyncio else None)
    yield maker
    maker.close()


# ---------------------------------------------------------------------- groups


def test_each_group_handles_every_message_of_a_stream(
    make_stream: MakeStream, make_group: MakeGroup, make_worker: MakeWorker
) -> None:
    stream = make_stream()
    groups = {name: make_group(group=name) for name in ("billing", "mail")}
    got: dict[str, list[int]] = {"billing": [], "mail": []}
    workers = {}
    for name, group in groups.items():
        workers[name] = make_worker(group, concurrency=2, name=name)
        workers[name].register("created", lambda order, name=name: got[name].append(order["n"]))
    stream.publish_many([{"type": "created", "n": n} for n in range(20)])

    with workers["billing"], workers["mail"]:
        wait_until(lambda: all(len(each) == 20 for each in got.values()), "both groups have all messages")
        wait_until(lambda: all(group.stats().acked == 20 for group in groups.values()), "all are acked")
    assert [sorted(each) for each in got.values()] == [list(range(20))] * 2
    assert [group.depth().ready for group in groups.values()] == [0, 0]


def test_a_group_retries_and_keeps_dead_letters_of_its_own(
    make_stream: MakeStream, make_group: MakeGroup, make_worker: MakeWorker
) -> None:
    events: list[QueueEvent] = []
    stream, group, other = make_stream(), make_group(on_event=events.append), make_group(group="mail")
    other.create("beginning")
    worker = make_worker(group, retry=Retry(max_attempts=2, backoff=AT_ONCE))
    worker.register("created", lambda _: False)
    stream.publish({"type": "created"}, headers={"tenant": "acme"})
    stream.publish({"order": 7}, headers={"type": "returned"})

    reports = [worker.run_once() for _ in range(3)]
    assert [(each.failed, each.unhandled, each.buried) for each in reports] == [(1, 0, 0), (1, 0, 1), (0, 1, 1)]
    dead = sorted((each.reason, each.error_type) for each in group.peek(9, state="dead"))
    assert dead == [("max_attempts", "HandlerFailedError"), ("unhandled_type", "UnhandledTypeError")]
    assert (other.depth().ready, other.depth().dead) == (2, 0)
    handled = [str(event.outcome) for event in events if event.operation == "handle"]
    assert handled == ["failure", "failure", "unhandled"]


def test_an_entry_of_another_client_is_routed_by_its_fields(
    make_stream: MakeStream, make_group: MakeGroup, make_worker: MakeWorker, client: redis.Redis
) -> None:
    make_stream().publish({"type": "created", "n": 1})
    client.xadd("sluicegate:{orders}:stream", {"data": '{"type":"created","n":2}', "created_at": "7"})
    client.xadd("sluicegate:{orders}:stream", {"event_type": "created", "n": "3"})
    worker, got = make_worker(make_group()), []
    worker.register("created", lambda order: got.append(order["n"]))

    assert [worker.run_once().handled for _ in range(3)] == [1, 1, 1]
    assert got == [1, 2, "3"]


def test_a_workers_name_is_the_consumer_of_its_group(
    make_stream: MakeStream, make_group: MakeGroup, make_worker: MakeWorker
) -> None:
    stream, group = make_stream(), make_group()
    worker, seen = make_worker(group, name="billing-7"), []
    worker.register("created", lambda _: seen.extend(each.consumer for each in group.pending()))
    stream.publish({"type": "created"})

    assert worker.run_once().handled == 1
    assert seen == ["billing-7"]


def test_a_group_that_does_not_exist_ends_the_worker(
    make_stream: MakeStream, make_group: MakeGroup, make_worker: MakeWorker
) -> None:
    make_stream().publish({"type": "created"})
    worker = make_worker(make_group(group="missing", start=None))
    worker.register("created", print)
    with pytest.raises(GroupNotFoundError, match="has no group 'missing'"):
        worker.run()


def test_two_workers_of_a_group_share_its_messages(
    make_stream: MakeStream, make_group: MakeGroup, make_worker: MakeWorker
) -> None:
    stream = make_stream()
    got: dict[str, list[int]] = {"a": [], "b": []}
    both = threading.Barrier(2)

    def handle(order: dict[str, Any], delivery: Delivery) -> None:
        got[delivery.worker].append(order["n"])
        if len(got[delivery.worker]) == 1:
            both.wait(20)

    workers = [make_worker(make_group(), name=name) for name in got]
    for worker in workers:
        worker.register("created", handle)
    with workers[0], workers[1]:
        stream.publish_many([{"type": "created", "n": n} for n in range(30)])
        wait_until(lambda: sum(map(len, got.values())) == 30, "all are handled")
    assert sorted(got["a"] + got["b"]) == list(range(30))
    assert all(got.values())


# ---------------------------------------------------------------------- jobs


def test_what_a_handler_returns_is_the_result_of_its_job(make_jobs: MakeJobs, make_worker: MakeWorker) -> None:
    jobs = make_jobs()
    worker = make_worker(jobs, name="worker-7")
    worker.register("resize", lambda job: {"width": job["width"] * 2})
    worker.register("check", lambda job: False)
    worker.set_default_handler(lambda job: None)
    ids = [jobs.enqueue({"kind": "resize", "width": 7}), jobs.enqueue({}, kind="check"), jobs.enqueue({"n": 1})]

    assert [worker.run_once().handled for _ in ids] == [1, 1, 1]
    found = [jobs.get(one) for one in ids]
    assert [(job.status, job.result(0)) for job in found] == [
        ("completed", {"width": 14}),
        ("completed", False),
        ("completed", None),
    ]
    assert {job.worker for job in found} == {"worker-7"}


def test_a_job_that_fails_is_tried_again_as_its_kind_says(make_jobs: MakeJobs, make_worker: MakeWorker) -> None:
    jobs = make_jobs(kinds={"email": JobKind(max_attempts=2, retry_backoff=AT_ONCE)})
    worker, seen = make_worker(jobs), []

    def send(_: dict[str, Any], delivery: Delivery) -> None:
        seen.append((delivery.attempt, delivery.max_attempts, delivery.is_last_attempt))
        raise TimeoutError("smtp timeout")

    worker.register("email", send)
    job_id = jobs.enqueue({"kind": "email"})

    assert [(each.failed, each.buried) for each in (worker.run_once(), worker.run_once())] == [(1, 0), (1, 1)]
    job = jobs.get(job_id)
    assert (job.status, job.attempts, job.last_error) == ("failed", 2, "smtp timeout")
    assert seen == [(1, 2, False), (2, 2, True)]


def test_a_retry_of_the_handler_comes_before_the_kinds(make_jobs: MakeJobs, make_worker: MakeWorker) -> None:
    jobs = make_jobs(kinds={"email": JobKind(max_attempts=3, retry_backoff=AT_ONCE)})
    worker = make_worker(jobs)
    worker.register("email", lambda _: 1 // 0, retry=Retry(max_attempts=1))
    job_id = jobs.enqueue({"kind": "email"})

    assert worker.run_once().buried == 1
    assert jobs.get(job_id).status == "failed"


def test_a_rejected_job_and_one_without_a_handler_have_failed(make_jobs: MakeJobs, make_worker: MakeWorker) -> None:
    jobs = make_jobs()
    worker = make_worker(jobs)

    def reject(_: Any) -> None:
        raise Reject("no such customer")

    worker.register("email", reject)
    ids = [jobs.enqueue({"kind": "email"}), jobs.enqueue({"kind": "fax"})]

    assert (worker.run_once().rejected, worker.run_once().unhandled) == (1, 1)
    texts = ["no such customer", "no handler takes type 'fax'"]
    assert [(jobs.get(one).status, jobs.get(one).last_error) for one in ids] == [("failed", text) for text in texts]


def test_a_result_that_json_cannot_carry_is_a_failure_that_names_the_path(
    make_jobs: MakeJobs, make_worker: MakeWorker
) -> None:
    jobs = make_jobs(default_kind=JobKind(max_attempts=1))
    worker = make_worker(jobs)
    worker.set_default_handler(lambda _: {"at": [object()]})
    job_id = jobs.enqueue({"n": 1})

    assert worker.run_once().failed == 1
    assert "$.at[0]" in jobs.get(job_id).last_error


def test_a_handler_reports_progress_and_heeds_a_cancellation(
    make_jobs: MakeJobs, make_worker: MakeWorker, flavour: Flavour
) -> None:
    jobs = make_jobs()
    worker, begun, asked = make_worker(jobs), threading.Event(), []
    go = threading.Event()

    async def in_asyncio(_: Any, delivery: Delivery) -> None:
        await delivery.job.update(0.5, "half")
        begun.set()
        await asyncio.to_thread(go.wait, 20)
        if await delivery.job.update(0.6):
            asked.append(delivery.job.cancel_requested)
            await delivery.job.cancel()

    def in_threads(_: Any, delivery: Delivery) -> None:
        delivery.job.update(0.5, "half")
        begun.set()
        go.wait(20)
        if delivery.job.update(0.6):
            asked.append(delivery.job.cancel_requested)
            delivery.job.cancel()

    worker.register("email", in_asyncio if flavour.asyncio else in_threads)
    job_id = jobs.enqueue({"kind": "email"})
    with worker:
        assert begun.wait(20)
        job = jobs.get(job_id)
        assert (job.status, job.progress, job.note) == ("running", 0.5, "half")
        assert jobs.cancel(job_id) == [job_id]
        go.set()
        wait_until(lambda: jobs.get(job_id).status == "cancelled", "it is cancelled")
    assert asked == [True]


def test_a_waiter_gets_the_result_of_a_worker(make_jobs: MakeJobs, make_worker: MakeWorker) -> None:
    jobs = make_jobs()
    worker = make_worker(jobs, concurrency=4)
    worker.register("square", lambda job: job["n"] ** 2)
    with worker:
        ids = [jobs.enqueue({"kind": "square", "n": n}) for n in range(10)]
        assert [jobs.get(one).result(30) for one in ids] == [n**2 for n in range(10)]
