"""The job queue of Redis's tutorial moves into a queue of jobs, and jobs keep their ids."""

from __future__ import annotations

import pytest
import redis

from sluicegate import RedisGateway
from sluicegate.errors import ConfigurationError
from sluicegate.jobs import RedisJobQueue
from sluicegate.migrating import JobQueueSource, Migration
from tests.migrating.old_queues import OldJobQueue


def move(gateway: RedisGateway, **options: object) -> Migration:
    return Migration(JobQueueSource(), "jobs", source_gateway=gateway, **options)  # type: ignore[arg-type]


def test_jobs_move_with_their_ids_and_what_is_known_of_them(client: redis.Redis, gateway: RedisGateway) -> None:
    old = OldJobQueue(client)
    ids = old.enqueue([{"kind": "email", "n": number} for number in range(5)])
    done = old.end("completed", result='{"sent": true}')
    failed = old.end("failed", last_error="smtp timeout")
    claimed = old.claim(ms_ago=3_600_000)

    report = move(gateway).run()

    assert {part.part: part.moved for part in report.parts} == {
        "in flight": 1,
        "pending": 2,
        "failed": 1,
        "completed": 1,
    }
    assert [key for key in client.keys("queue:jobs*") if b"sluicegate" not in key] == []
    jobs = RedisJobQueue("jobs", client=client)
    found = {job_id: jobs.get(job_id) for job_id in ids}
    assert [(job.status, job.attempts, job.kind) for job in found.values()] == [
        ("completed", 3, "email"),
        ("failed", 3, "email"),
        ("waiting", 1, "email"),
        ("waiting", 0, "email"),
        ("waiting", 0, "email"),
    ]
    assert (found[done].stored_result, found[failed].last_error) == ({"sent": True}, "smtp timeout")
    assert found[claimed].payload == {"kind": "email", "n": 2}
    assert found[claimed].enqueued_at.year == 2024
    order = []
    while lease := jobs.claim(10):
        for job in lease.jobs:
            order.append(job.id)
            job.complete({"n": 1})
    assert order == ids[2:]
    assert jobs.get(claimed).status == "completed"
    assert jobs.redrive().redriven == 1
    assert jobs.get(failed).status == "waiting"


def test_jobs_of_live_workers(client: redis.Redis, gateway: RedisGateway) -> None:
    old = OldJobQueue(client)
    ids = old.enqueue([[1], [2]])
    old.claim(ms_ago=1000)
    with pytest.raises(ConfigurationError, match="may be working on 1 of 1"):
        move(gateway).run()
    assert move(gateway, in_flight="leave").run().moved == 1
    assert client.lrange("queue:jobs:processing", 0, -1) == [ids[0].encode()]
    assert move(gateway, live_seconds=0.5).run().moved == 1


def test_ids_without_a_record_and_known_ids_are_left(client: redis.Redis, gateway: RedisGateway) -> None:
    old = OldJobQueue(client)
    old.enqueue([{"n": 1}])
    assert move(gateway).run().moved == 1
    (known,) = [job.id for job in RedisJobQueue("jobs", client=client).list("waiting")]
    client.hset(f"queue:jobs:job:{known}", mapping={"id": known, "payload": "[]"})
    client.lpush("queue:jobs:pending", known, "ghost")
    old.enqueue(["not { JSON"], payload="not { JSON")

    (part,) = move(gateway).run().parts

    assert (part.moved, part.raw, part.left) == (1, 1, 2)
    assert part.reasons == {"an id without a record": 1, "its id is known in the new place": 1}
    assert client.exists(f"queue:jobs:job:{known}") == 1
    assert client.llen("{queue:jobs:pending}:sluicegate:left") == 2


def test_a_history_whose_records_have_expired_there_is_no_loss(client: redis.Redis, gateway: RedisGateway) -> None:
    client.lpush("queue:jobs:completed", "gone")
    (part,) = move(gateway).run().parts
    assert (part.moved, part.left, part.known) == (0, 0, 1)
