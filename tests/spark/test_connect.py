"""The drain on Spark Connect: a client without a SparkContext, in a process of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from sluicegate import RedisMessageQueue
from tests.spark.helpers import Numbers

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]

PROGRAM = """
import json, sys
from pyspark.sql import SparkSession
from sluicegate import QueueSpec, RedisMessageQueue
from sluicegate.errors import DrainFailedError
from sluicegate.spark import drain

def process(batch, ctx):
    if any(message.json()["n"] == 7 for message in batch):
        raise ValueError("seven")

spark = SparkSession.builder.remote("local[2]").getOrCreate()
try:
    drain(spark, RedisMessageQueue.from_spec(QueueSpec.from_json(sys.argv[1])), process)
except DrainFailedError as failed:
    print(json.dumps(dict(failed.summary.to_dict(), session=type(spark).__module__)))
finally:
    spark.stop()
"""

# A Connect client cannot set these for the server that it starts.
DEFAULTS = """
spark.ui.enabled false
spark.driver.host 127.0.0.1
spark.driver.bindAddress 127.0.0.1
spark.driver.memory 1g
"""


def test_a_drain_on_connect_does_the_same(queue: RedisMessageQueue, numbers: Numbers, tmp_path: Path) -> None:
    numbers(200)
    (tmp_path / "spark-defaults.conf").write_text(DEFAULTS)

    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, queue.spec().to_json()],
        env={
            **os.environ,
            "PYSPARK_PYTHON": sys.executable,
            "SPARK_CONF_DIR": str(tmp_path),
            "SPARK_LOCAL_IP": "127.0.0.1",
            "SPARK_TESTING": "1",  # the server listens on a free port instead of a fixed one
        },
        cwd=tmp_path,
        text=True,
        capture_output=True,
        timeout=280,
        check=False,
    )

    assert (done.returncode, bool(done.stdout)) == (0, True), done.stderr
    told = json.loads(done.stdout.strip().splitlines()[-1])
    assert told["session"] == "pyspark.sql.connect.session"
    assert (told["acked"], told["returned"], len(told["partitions"])) == (199, 1, 2)
    assert (queue.depth().delayed, queue.depth().leases) == (1, 0)
