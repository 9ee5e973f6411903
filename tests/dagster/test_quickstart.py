"""The example of the README, from publish to files."""

from __future__ import annotations

import importlib
import json
from pathlib import Path

import dagster as dg
import pytest

pytestmark = pytest.mark.dagster


def test_the_quickstart_publishes_opens_and_drains(
    tmp_path: Path, url: str, instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REDIS_URL", url)
    monkeypatch.chdir(tmp_path)
    example = importlib.import_module("example_dags.dagster_quickstart")
    example.defs.validate_loadable(example.defs)
    resources = example.defs.resources

    def publish() -> dict[str, object]:
        result = dg.materialize([example.published], resources=resources, instance=instance)
        (event,) = result.asset_materializations_for_node("published")
        return {name: value.value for name, value in event.metadata.items()}

    assert publish() == {"accepted": 2500, "duplicates": 0}
    assert publish() == {"accepted": 0, "duplicates": 2500}

    context = dg.build_sensor_context(instance=instance, resources=resources)
    sensor = example.defs.resolve_sensor_def("orders_gate")
    (request,) = sensor.evaluate_tick(context).run_requests
    assert request.run_key == "orders:0:0"

    drained = dg.materialize([example.orders], resources=resources, instance=instance, tags=request.tags)
    (event,) = drained.asset_materializations_for_node("orders")
    assert event.metadata["dagster/row_count"].value == 2500
    files = sorted((tmp_path / example.FOLDER).glob("*.jsonl"))
    assert len(files) == 3
    rows = [json.loads(line) for file in files for line in file.read_text().splitlines()]
    assert sorted(row["order_id"] for row in rows) == list(range(2500))
    assert "0 messages ready" in sensor.evaluate_tick(context).skip_message
