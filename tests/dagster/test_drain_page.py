"""The example of the page about Dagster's drain, with real messages."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import dagster as dg
import pytest

from dagster_sluicegate import RedisQueueResource
from sluicegate import RedisMessageQueue
from tests.support.snippets import snippet

pytestmark = pytest.mark.dagster


def test_the_drain_of_the_page_writes_buries_and_evaluates(
    queue: RedisMessageQueue, resource: RedisQueueResource, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {"__name__": "page"}
    exec(compile(snippet("dagster-drain-asset"), "page", "exec"), names)  # noqa: S102
    queue.publish_many({"order_id": n, "amount": n} for n in range(4))
    config = {"ops": {"orders": {"config": {"least_amount": 2}}}}

    resources = {**names["defs"].resources, "queue": resource}
    result = dg.materialize([names["orders"]], resources=resources, run_config=config)

    (event,) = result.asset_materializations_for_node("orders")
    (check,) = result.get_asset_check_evaluations()
    lines = [line for file in Path("build/orders").glob("*.jsonl") for line in file.read_text().splitlines()]
    assert [json.loads(line)["order_id"] for line in lines] == [2, 3]
    assert (event.metadata["sluicegate/acked"].value, event.metadata["sluicegate/buried"].value) == (2, 2)
    assert (check.passed, check.metadata["too_small"].value) == (False, 2)
