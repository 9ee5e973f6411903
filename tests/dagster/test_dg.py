"""The command `dg` lists, scaffolds, checks and launches the components in a project of its own."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import dagster as dg
import pytest

from dagster_sluicegate import RedisQueueResource, components

pytestmark = [pytest.mark.dagster, pytest.mark.slow]

PROJECT = """
[project]
name = "shop"
version = "0.1.0"

[tool.dg]
directory_type = "project"

[tool.dg.project]
root_module = "shop"
"""
DEFINITIONS = """
from pathlib import Path

from dagster import definitions, load_from_defs_folder


@definitions
def defs():
    return load_from_defs_folder(path_within_project=Path(__file__).parent)
"""
# Several commands in one process, because each process imports Dagster for seconds.
DG = """
import sys
from dagster_dg_cli.cli import cli
for command in sys.argv[1:]:
    print(f"$ {command}", flush=True)
    code = cli.main(command.split(), standalone_mode=False)
    if code:
        sys.exit(code)
"""
COMPONENTS = "dagster_sluicegate.components"
SCAFFOLD = (
    f"scaffold defs {COMPONENTS}.RedisQueueResourceComponent orders_queue --url-env-var SHOP_REDIS",
    f"scaffold defs {COMPONENTS}.QueueDrainAssetComponent orders",
    f"scaffold defs {COMPONENTS}.QueueDepthSensorComponent orders_gate --target key:orders --min-ready 3",
)


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    package = folder / "src" / "shop"
    (package / "defs").mkdir(parents=True)
    (folder / "pyproject.toml").write_text(PROJECT)
    (package / "definitions.py").write_text(DEFINITIONS)
    for module in (package, package / "defs"):
        (module / "__init__.py").touch()
    return folder


def run(project: Path, *commands: str, expected: int = 0, **environment: str) -> dict[str, str]:
    """Run `dg` commands and return what each printed; a warning of this library is a failure."""
    done = subprocess.run(
        [sys.executable, "-c", DG, *commands],
        cwd=project,
        env={**os.environ, "PYTHONPATH": str(project / "src"), "DAGSTER_DISABLE_TELEMETRY": "yes", **environment},
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == expected, done.stdout + done.stderr
    warned = [line for line in done.stderr.splitlines() if re.search(r"Warning\b", line)]
    assert [line for line in warned if "site-packages/dagster" not in line] == []
    printed = re.split(r"^\$ (.+)\n", done.stdout, flags=re.MULTILINE)[1:]
    return dict(zip(printed[::2], printed[1::2], strict=True))


@pytest.mark.full
def test_dg_lists_scaffolds_and_checks_the_components(project: Path) -> None:
    listing = "list components --json"
    checks = ("check yaml --validate-requirements", "check defs", "list defs")
    printed = run(project, listing, *SCAFFOLD, *checks)

    listed = json.loads(printed[listing])
    listed = listed["items"] if isinstance(listed, dict) else listed  # dg 1.12 prints a list
    items = {item["key"]: item["summary"] for item in listed}
    ours = {key: summary for key, summary in items.items() if "sluicegate" in key}
    assert ours.keys() == {f"{COMPONENTS}.{name}" for name in components.__all__}
    assert all(summary.endswith(".") for summary in ours.values())
    assert "validated successfully" in printed["check yaml --validate-requirements"]
    assert "All definitions loaded successfully." in printed["check defs"]
    for name in ("orders", "redis", "orders_gate", "queue"):
        assert re.search(rf"│ {name} +│", printed["list defs"]), name


@pytest.mark.full
def test_dg_names_the_file_and_the_field_of_an_attribute_that_no_component_has(project: Path) -> None:
    run(project, SCAFFOLD[1])
    path = project / "src/shop/defs/orders/defs.yaml"
    path.write_text(path.read_text().replace("batch_size", "batch_sise"))
    (printed,) = run(project, "check yaml", expected=1).values()
    assert "defs/orders/defs.yaml:9" in printed
    assert "'batch_sise' was unexpected" in printed


@pytest.mark.full
def test_dg_launches_a_drain_out_of_scaffolded_yaml(
    project: Path, url: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    home = tmp_path / "home"
    home.mkdir()
    (home / "dagster.yaml").write_text("telemetry:\n  enabled: false\n")
    run(project, *(command.replace(" orders_queue ", " launched ") for command in SCAFFOLD))
    with RedisQueueResource(url=url, queue_name="launched").get_queue() as queue:
        queue.publish_many({"n": n} for n in range(2500))
        run(project, "launch --assets key:orders", SHOP_REDIS=url, DAGSTER_HOME=str(home))
        assert (queue.depth().ready, queue.depth().in_flight) == (0, 0)
    rows = [json.loads(line) for file in (project / "data/orders").iterdir() for line in file.read_text().splitlines()]
    assert sorted(row["n"] for row in rows) == list(range(2500))
    monkeypatch.setenv("DAGSTER_HOME", str(home))
    with dg.DagsterInstance.get() as instance:
        (run_record,) = instance.get_run_records()
        assert run_record.dagster_run.is_success
