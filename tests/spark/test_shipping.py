"""The package as a zip: `spark-submit --py-files` to a driver and workers that have not installed it."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from sluicegate import RedisMessageQueue
from sluicegate.core import scripts
from tests.draining.helpers import Numbers
from tests.spark.shipping import bare_environment, package_zip, spark_defaults, submit_orders

JOBS = """
import sluicegate

def store(batch, ctx):
    numbers = [message.json()["n"] for message in batch]
    with open(FOLDER + "/" + ctx.lease_key, "w") as output:
        output.write("\\n".join([sluicegate.__file__, *map(str, numbers)]))
    if 7 in numbers:
        raise ValueError("seven")
"""


def test_the_lua_files_are_in_the_zip_and_read_from_it(tmp_path: Path) -> None:
    program = "from sluicegate.core import scripts; print(scripts.load('claim').text.decode())"
    archive = package_zip(tmp_path)
    environment = bare_environment(tmp_path)
    environment["PYTHONPATH"] = f"{archive}:{environment['PYTHONPATH']}"

    said = subprocess.run(
        [environment["PYSPARK_PYTHON"], "-c", program],
        env=environment,
        cwd=tmp_path,
        text=True,
        capture_output=True,
        check=True,
    ).stdout

    assert said.strip() == scripts.load("claim").text.decode().strip()


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.timeout(400)
@pytest.mark.full
def test_submitted_with_py_files_it_drains_where_nothing_is_installed(
    queue: RedisMessageQueue, numbers: Numbers, tmp_path: Path
) -> None:
    numbers(60)
    environment = bare_environment(spark_defaults(tmp_path))

    done = submit_orders(queue, JOBS, package_zip(tmp_path), environment, master="local[2]")

    assert done.code == 3, done.errors
    summary = done.summary
    assert (summary["acked"], summary["returned"], [f["error"] for f in summary["failures"]]) == (59, 1, ["seven"])
    assert {int(n) for lines in done.written for n in lines[1:]} == set(range(60))
    assert all("sluicegate.zip/sluicegate" in lines[0] for lines in done.written)
    assert (queue.depth().delayed, queue.depth().leases) == (1, 0)
