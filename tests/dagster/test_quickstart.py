"""The example of the README, from publish to files."""

from __future__ import annotations

import importlib
import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import dagster as dg
import pytest

from sluicegate.embedded import stop_server
from tests.support.project import ROOT

pytestmark = pytest.mark.dagster

QUICKSTART = "example_dags/dagster_quickstart.py"


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


@pytest.mark.full
def test_its_commands_run_as_they_stand_in_a_folder_that_has_nothing_else(tmp_path: Path) -> None:
    (tmp_path / "example_dags").mkdir()
    shutil.copy(ROOT / QUICKSTART, tmp_path / QUICKSTART)
    example = importlib.import_module("example_dags.dagster_quickstart")
    commands = [line for line in example.__doc__.splitlines() if line.startswith(("export", "mkdir", "dg ", "dagster"))]
    assert commands[-1].startswith("dagster-daemon run")
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("DAGSTER_HOME", "REDIS"))}
    environment["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    log = tmp_path / "log"
    with log.open("w") as output:
        script = "set -e\n" + "\n".join([*commands[:-1], f"exec {commands[-1]}"])
        shell = subprocess.Popen(
            ["bash", "-c", script], cwd=tmp_path, env=environment, stdout=output, stderr=subprocess.STDOUT
        )
        try:
            deadline = time.monotonic() + 120
            while "RUN_SUCCESS" not in log.read_text().partition("Launching run for orders_gate")[2]:
                assert shell.poll() is None, log.read_text()
                assert time.monotonic() < deadline, log.read_text()
                time.sleep(0.2)
        finally:
            shell.terminate()
            shell.wait(60)
            stop_server(tmp_path / "build" / "orders")
    assert "Supersession" not in log.read_text()
    files = (tmp_path / "build" / "dagster_quickstart").glob("*.jsonl")
    assert sum(len(file.read_text().splitlines()) for file in files) == 2500
