"""The example project: `dg` finds its definitions, and its assets publish, open the gate and join in one graph."""

from __future__ import annotations

import importlib
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import dagster as dg
import pytest

from tests.demo.helpers import some_rows, write_csv
from tests.support.project import ROOT

pytestmark = pytest.mark.dagster

PROJECT = ROOT / "examples" / "dagster"
COUNT = 40
COUNTED = ("sluicegate/accepted", "sluicegate/duplicates")


@pytest.fixture
def defs(tmp_path: Path, url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[dg.Definitions]:
    """Yield the definitions as `dg` loads them, over a file of some flights and a queue that is empty."""
    csv = write_csv(tmp_path / "flights.csv.zip", some_rows(COUNT))
    settings = {"REDIS_URL": url, "FLIGHTS_CSV": str(csv), "FLIGHTS_OUTPUT": str(tmp_path), "FLIGHTS_MIN_READY": "40"}
    for name, value in settings.items():
        monkeypatch.setenv(name, value)
    monkeypatch.syspath_prepend(PROJECT)
    module: ModuleType = importlib.import_module("flights_pipeline.definitions")
    yield module.defs()
    for name in [name for name in sys.modules if name.partition(".")[0] == "flights_pipeline"]:
        del sys.modules[name]


def launched_by_the_tutorial() -> set[str]:
    """Return the assets that the commands of the documentation launch in this project."""
    tutorial = (ROOT / "docs" / "tutorials" / "dagster.md").read_text()
    named = re.findall(r"dg launch --assets (\S+)", tutorial)
    assert len(named) == 3
    assert all(
        (PROJECT / "flights_pipeline" / "defs" / file).is_file() for file in re.findall(r"`(\w+\.py)`", tutorial)
    )
    return {asset for assets in named for asset in assets.split(",")}


def test_publishing_twice_adds_nothing_and_the_sensor_requests_the_drain(
    defs: dg.Definitions, instance: dg.DagsterInstance
) -> None:
    publishers = [dg.AssetKey(name) for name in ("published_year", "published_month_again")]
    job = defs.resolve_implicit_global_asset_job_def()
    result = job.execute_in_process(asset_selection=publishers, instance=instance)
    counts = [
        {name: value.value for name, value in event.metadata.items() if name in COUNTED}
        for node in ("published_year", "published_month_again")
        for event in result.asset_materializations_for_node(node)
    ]
    assert counts == [dict(zip(COUNTED, counts, strict=True)) for counts in ((COUNT, 0), (0, COUNT))]

    context = dg.build_sensor_context(instance=instance, resources=defs.resources)
    (request,) = defs.resolve_sensor_def("flights_gate").evaluate_tick(context).run_requests
    assert request.run_key == "flights:0:0"
    assert request.tags["sluicegate/ready"] == str(COUNT)


@pytest.mark.full  # dg is tried on the components in the quick lane
def test_dg_lists_one_graph_from_the_publishers_through_the_queue_to_the_delays() -> None:
    environment = {name: value for name, value in os.environ.items() if name != "REDIS_URL"}
    listed = subprocess.run(
        [sys.executable, "-m", "dagster_dg_cli.cli", "list", "defs", "--json"],
        cwd=PROJECT, env=environment, capture_output=True, text=True, timeout=120, check=True,
    )  # fmt: skip
    found = json.loads(listed.stdout)
    assert launched_by_the_tutorial() <= {asset["asset_key"] for asset in found["assets"]}
    assert [sensor["name"] for sensor in found["sensors"]] == ["flights_gate"]
    assert {asset["asset_key"]: set(asset["dependency_keys"]) for asset in found["assets"]} == {
        "published_year": set(),
        "published_month_again": {"published_year"},
        "flights_queue": {"published_year", "published_month_again"},
        "flights": {"flights_queue"},
        "average_delays": {"flights"},
    }
