"""Lost replies, a drain and other consumers of a queue of jobs."""

from __future__ import annotations

from typing import Any

import pytest
import redis

from sluicegate import Message, drain
from sluicegate.core.call import Call
from sluicegate.errors import RetryBudgetExhaustedError
from sluicegate.jobs import JobKind, RedisJobQueue
from tests.support.servers import RedisServer


class Lossy:
    """Executes every call twice and loses the first reply, as a connection that breaks after the server has worked."""

    def __init__(self, jobs: RedisJobQueue) -> None:
        self.lost: list[str] = []
        self._gateway = jobs.session.runner.gateway
        self._execute, self._send = self._gateway.execute, self._gateway.send

    def __enter__(self) -> Lossy:
        def execute(call: Call[Any], **options: Any) -> Any:
            self._execute(call, **options)
            self.lost.append(call.script.name)
            return self._execute(call.later(0.5), **options)

        def send(call: Call[Any], **options: Any) -> Any:
            self._execute(call)
            self.lost.append(call.script.name)
            return self._send(call.later(0.5), **options)

        self._gateway.execute, self._gateway.send = execute, send  # type: ignore[method-assign]
        return self

    def __exit__(self, *why: object) -> None:
        self._gateway.execute, self._gateway.send = self._execute, self._send  # type: ignore[method-assign]


@pytest.fixture
def jobs(server: RedisServer, client: redis.Redis) -> Any:
    """Return a queue of jobs with an address, so that other processes can open it."""
    with RedisJobQueue("work", url=server.url, default_kind=JobKind(max_attempts=2)) as made:
        yield made


def test_every_call_about_a_job_may_lose_its_reply(jobs: RedisJobQueue) -> None:
    with Lossy(jobs) as lossy:
        report = jobs.enqueue_many([{"n": number} for number in range(4)])
        lease = jobs.claim_jobs(4)
        first, second, third, _ = lease.jobs
        first.update(0.5, "half")
        first.complete({"done": 1})
        second.fail("no")
        third.fail("never", retry=False)
        assert jobs.cancel([report.ids[3]]) == [report.ids[3]]
        lease.extend()
        assert lease.jobs[3].cancel_requested
        lease.jobs[3].cancel()
        assert [job.status for job in jobs.get_many(report.ids).values()] == [
            "completed", "delayed", "failed", "cancelled",
        ]  # fmt: skip
        assert jobs.cancel(report.ids) == [report.ids[1]]
        assert jobs.get(report.ids[0]).result() == {"done": 1}
    stats = jobs.stats()
    assert (stats.enqueued_jobs, stats.claimed, stats.completed_jobs, stats.failed_jobs, stats.cancelled_jobs) == (
        4, 4, 1, 1, 2,
    )  # fmt: skip
    assert {"publish", "claim", "settle", "update_job", "cancel_job", "cancel", "peek_jobs", "keep_jobs"} <= {
        *lossy.lost
    }


def test_a_completion_whose_reply_is_lost_may_be_given_again(jobs: RedisJobQueue) -> None:
    made = jobs.enqueue({"n": 1})
    (job,) = jobs.claim_jobs().jobs
    gateway = jobs.session.runner.gateway
    execute = gateway.execute

    def lose(call: Call[Any], **options: Any) -> Any:
        execute(call, **options)
        raise RetryBudgetExhaustedError("the reply is lost")

    gateway.execute = lose  # type: ignore[method-assign]
    with pytest.raises(RetryBudgetExhaustedError):
        job.complete({"n": 1})
    gateway.execute = execute  # type: ignore[method-assign]
    job.complete({"n": 1})
    assert jobs.get(made).result() == {"n": 1}
    assert jobs.stats().completed_jobs == 1


def test_a_drain_completes_jobs_and_fails_those_that_it_cannot_handle(jobs: RedisJobQueue) -> None:
    report = jobs.enqueue_many([{"n": number} for number in range(20)])

    def handle(batch: list[Message], ctx: Any) -> None:
        for message in batch:
            if message.json()["n"] == 7:
                ctx.bury(message, error="no seven")

    summary = drain(jobs, handle, batch_size=6)
    assert (summary.acked, summary.buried) == (19, 1)
    found = list(jobs.get_many(report.ids).values())
    assert [job.status for job in found] == ["failed" if job.payload["n"] == 7 else "completed" for job in found]
    assert found[7].last_error == "no seven"


def test_two_worker_processes_drain_a_queue_of_jobs_by_its_spec(jobs: RedisJobQueue) -> None:
    report = jobs.enqueue_many([{"n": number} for number in range(30)])
    summary = drain(jobs, accept, workers=2, batch_size=5)
    assert summary.acked == 30
    assert {job.status for job in jobs.get_many(report.ids).values()} == {"completed"}
    assert all(":" in (job.worker or "") for job in jobs.get_many(report.ids).values()), "host and process"


def accept(batch: list[Message]) -> None:
    """Handle nothing, successfully; worker processes import it."""


def test_a_message_block_over_a_queue_of_jobs_completes_one(jobs: RedisJobQueue) -> None:
    made = jobs.enqueue({"n": 1})
    with jobs.process_message() as payload:
        assert payload == b'{"n":1}'
    assert jobs.get(made).status == "completed"


def test_a_detached_lease_continues_as_a_lease_of_jobs(jobs: RedisJobQueue) -> None:
    made = jobs.enqueue({"n": 1})
    lease = jobs.attach(jobs.claim_jobs().detach())
    lease.complete_many(dict.fromkeys(lease.jobs, "attached"))  # type: ignore[attr-defined]
    assert jobs.get(made).result() == "attached"


def test_a_full_server_still_lets_jobs_end(jobs: RedisJobQueue, client: redis.Redis) -> None:
    report = jobs.enqueue_many([{"n": number} for number in range(3)])
    client.config_set("maxmemory", client.info("memory")["used_memory"] - 1)
    lease = jobs.claim_jobs(3)
    first, second, third = lease.jobs
    first.update(1.0)
    first.complete({"done": True})
    second.fail("no", retry=False)
    jobs.cancel([third.id])
    third.cancel()
    client.config_set("maxmemory", 0)
    assert [job.status for job in jobs.get_many(report.ids).values()] == ["completed", "failed", "cancelled"]
