"""The middleware of the documentation does what its page says."""

from __future__ import annotations

from typing import Any

import pytest
import redis

from sluicegate.jobs import RedisJobQueue
from sluicegate.streams import RedisStreamQueue
from tests.support.servers import RedisServer
from tests.support.snippets import snippet
from tests.worker.conftest import MakeWorker


def test_the_middleware_of_the_page_rejects_unknown_tenants(
    queue: Any, make_worker: MakeWorker, capfd: pytest.CaptureFixture[str]
) -> None:
    code: dict[str, Any] = {}
    exec(snippet("worker-middleware"), code)  # noqa: S102
    worker = make_worker(queue, middleware=[code["Tenant"]()], concurrency=3)
    worker.register("known", lambda _: None)
    worker.register("missing", lambda order: order["order_id"])
    queue.publish({"type": "known"}, headers={"tenant": "acme"})
    queue.publish({"type": "known"}, headers={"tenant": "other"})
    queue.publish({"type": "missing"}, headers={"tenant": "initech"})

    report = worker.run_once()
    assert (report.handled, report.rejected, report.buried) == (1, 2, 2)
    assert {dead.reason for dead in queue.peek(9, state="dead")} == {"hopeless"}
    assert capfd.readouterr().out == "known handled at attempt 1\n"


def test_the_workers_of_the_page_handle_a_group_and_jobs(
    server: RedisServer, client: redis.Redis, capfd: pytest.CaptureFixture[str]
) -> None:
    code: dict[str, Any] = {}
    exec(snippet("worker-sources"), code)  # noqa: S102
    with RedisStreamQueue("orders", client=client) as stream, RedisJobQueue("images", client=client) as jobs:
        stream.publish({"order_id": 7})
        job_id = jobs.enqueue({"kind": "resize", "width": 21})
        assert [worker.run_once().handled for worker in code["make_workers"](server.url)] == [1, 1]
        assert (jobs.get(job_id).result(0), jobs.get(job_id).progress) == ({"width": 42}, 0.5)
    assert capfd.readouterr().out == "billed: 7\n"
