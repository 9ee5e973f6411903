"""The interpreter that Spark's Python workers run with."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from sluicegate import ConfigurationError, RedisMessageQueue
from sluicegate.spark import drain
from tests.draining.helpers import Numbers
from tests.spark.shipping import spark_defaults

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DRIVER = """
import sys
from pyspark.sql import SparkSession
from sluicegate import QueueSpec, RedisMessageQueue
from sluicegate.spark import drain, options

spark = SparkSession.builder.master("local[1]").getOrCreate()
assert spark.sparkContext.pythonExec == "python3"
queue = RedisMessageQueue.from_spec(QueueSpec.from_json(sys.argv[1]))
print("read", spark.read.format("sluicegate").options(**options(queue)).load().count())
print("acked", drain(spark, queue, lambda batch: None, progress=False).acked)
"""


def other_python(folder: Path) -> Path:
    """Return an interpreter without any packages, under the name that Spark looks for."""
    folder.mkdir()
    program = folder / "python3"
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -S "$@"\n')
    program.chmod(0o755)
    return program


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.full
def test_a_local_spark_runs_its_workers_as_its_driver_although_the_environment_is_not_activated(
    queue: RedisMessageQueue, numbers: Numbers, tmp_path: Path
) -> None:
    numbers(5)
    other = other_python(tmp_path / "bin")
    environment = {name: value for name, value in os.environ.items() if name not in ("PYSPARK_PYTHON", "VIRTUAL_ENV")}
    environment |= {
        "PATH": f"{other.parent}:{environment['PATH']}",
        "SPARK_CONF_DIR": str(spark_defaults(tmp_path)),
        "SPARK_LOCAL_IP": "127.0.0.1",
    }

    done = subprocess.run(
        [sys.executable, "-c", DRIVER, queue.spec().to_json()],
        env=environment,
        cwd=tmp_path,
        text=True,
        capture_output=True,
        timeout=280,
        check=False,
    )

    assert done.stdout.splitlines() == ["read 5", "acked 5"], done.stderr[-5000:]


@pytest.mark.spark
@pytest.mark.timeout(300)  # which may start the session
def test_workers_of_a_local_spark_run_with_the_interpreter_of_their_driver(
    spark: SparkSession, queue: RedisMessageQueue, numbers: Numbers, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As when nobody has named an interpreter and the one on PATH lacks everything."""
    numbers(3)
    monkeypatch.delenv("PYSPARK_PYTHON")
    monkeypatch.setattr(spark.sparkContext, "pythonExec", str(other_python(tmp_path / "bin")))

    assert drain(spark, queue, lambda batch: None, progress=False).acked == 3
    assert spark.sparkContext.pythonExec == sys.executable


@pytest.mark.spark
@pytest.mark.timeout(300)  # which may start the session
def test_workers_without_the_package_are_told_in_a_few_words(
    spark: SparkSession,
    queue: RedisMessageQueue,
    numbers: Numbers,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The user has named the interpreter, and is not overruled."""
    numbers(1)
    other = str(other_python(tmp_path / "bin"))
    monkeypatch.setenv("PYSPARK_PYTHON", other)
    monkeypatch.setattr(spark.sparkContext, "pythonExec", other)

    with pytest.raises(ConfigurationError, match=r"workers cannot import '\w+'.*PYSPARK_PYTHON") as caught:
        drain(spark, queue, lambda batch: None, progress=False)

    assert len(str(caught.value).splitlines()) == 1
    assert spark.sparkContext.pythonExec == other
    assert queue.depth().ready == 1
