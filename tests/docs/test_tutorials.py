"""The tutorials do what they show: their commands run as they stand, and print what the pages print."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from sluicegate import RedisMessageQueue
from sluicegate.embedded import stop_server
from tests.support.project import ROOT
from tests.support.waiting import wait_until

STORED = "stored 1000 orders"

PYTHON = (ROOT / "docs" / "tutorials" / "python.md").read_text()
AIRFLOW = (ROOT / "docs" / "tutorials" / "airflow.md").read_text()
# The commands of a step, and the output that the page shows below them.
STEP = re.compile(r"<!-- commands: (\w+) -->\n```bash\n(.*?)```\n(?:\n```text\n(.*?)```)?", re.DOTALL)


def environment(**more: str) -> dict[str, str]:
    return {**os.environ, "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]), **more}


@pytest.mark.full  # tests/draining kills drains in less time
def test_the_python_tutorial_runs_as_it_stands(tmp_path: Path) -> None:
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    (tmp_path / "build" / "tutorial").mkdir(parents=True)
    redis = tmp_path / "build" / "tutorial" / "redis"
    url = f"embedded://{redis}"

    def run(name: str) -> list[str]:
        """Run the commands of a step, compare what they print with the page, and return it."""
        commands, shown = steps[name]
        done = subprocess.run(
            ["bash", "-ec", commands],
            cwd=tmp_path,
            env=environment(REDIS_URL=url),
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        printed = [line.strip() for line in done.stdout.splitlines()]
        assert [line for line in printed if line != STORED] == shown.splitlines()
        return printed

    steps = {name: (commands, shown) for name, commands, shown in STEP.findall(PYTHON)}
    assert list(steps) == ["publish", "gate", "drain", "kill", "resume", "count"]
    try:
        run("publish")
        run("gate")
        program = shlex.split(steps["drain"][0])
        assert program[1] in steps["kill"][0]
        with (
            RedisMessageQueue("orders", url=url) as queue,
            subprocess.Popen(
                program, cwd=tmp_path, env=environment(REDIS_URL=url), stdout=subprocess.PIPE, text=True
            ) as drain,
        ):
            assert drain.stdout is not None
            first = [drain.stdout.readline().strip() for _ in range(2)]
            wait_until(lambda: queue.depth().in_flight == 2000, "the next two batches are claimed")
            drain.kill()
        stored = len(first) + run("resume").count(STORED)
        assert (first, stored) == ([STORED] * 2, 20)
        run("count")
    finally:
        stop_server(redis)


@pytest.mark.timeout(900)
@pytest.mark.full  # tests/airflow runs this DAG, and Airflow's own commands, in less time
@pytest.mark.airflow
@pytest.mark.spark
def test_the_airflow_tutorial_runs_until_its_dag_has_stored_every_order(tmp_path: Path) -> None:
    import pyarrow.parquet as pq

    (tmp_path / "example_dags").symlink_to(ROOT / "example_dags")
    blocks = re.findall(r"```bash\n(.*?)```", AIRFLOW, re.DOTALL)
    first = next(number for number, block in enumerate(blocks) if block.startswith("airflow dags test"))
    commands = "".join(blocks[: first + 1])
    home = tmp_path / "build" / "tutorial"
    try:
        done = subprocess.run(
            ["bash", "-ec", re.sub(r"^(python -m venv|pip install) .*\n", "", commands, flags=re.MULTILINE)],
            cwd=tmp_path,
            env={name: value for name, value in environment().items() if not name.startswith("AIRFLOW_")},
            capture_output=True,
            text=True,
            check=False,
        )
        printed = done.stdout + done.stderr
        assert done.returncode == 0, printed[-4000:]
        shown = re.search(r"```text\n(queue 'example-orders', done:.*?)```", AIRFLOW, re.DOTALL)
        assert shown is not None
        for part in (
            "done: 20000 published, 0 duplicates refused",
            "open, by depth",
            "20000 messages acked, 0 returned",
        ):
            assert part in shown[1]
            assert part in printed
        orders = sorted((home / "orders").glob("*.parquet"))
        assert len(orders) == 20
        assert sum(pq.read_metadata(file).num_rows for file in orders) == 20_000
    finally:
        stop_server(home / "redis")
