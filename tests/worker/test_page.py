"""The middleware of the documentation does what its page says."""

from __future__ import annotations

from typing import Any

import pytest

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
