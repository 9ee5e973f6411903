"""Leased batches and dead letters on Spark Connect: a client without a SparkContext, in a process of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from sluicegate import RedisMessageQueue
from tests.spark.helpers import Numbers
from tests.spark.shipping import spark_defaults

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(400)]

PROGRAM = """
import json, sys
from pyspark.sql import SparkSession
from sluicegate import QueueSpec, RedisMessageQueue
from sluicegate.spark import dead_letters, lease_batch, redrive_selected

spark = SparkSession.builder.remote("local[2]").getOrCreate()
queue = RedisMessageQueue.from_spec(QueueSpec.from_json(sys.argv[1]))
told = {"session": type(spark).__module__}
try:
    with lease_batch(spark, queue, 100, run_id="r", schema="n bigint") as batch:
        told["numbers"] = sorted(row.n for row in batch.df.collect())
        told["acked"] = batch.ack_where(batch.df.filter("n < 10"))
        told["left"] = batch.df.count()
    letters = dead_letters(spark, queue)
    told["dead"] = letters.count()
    told["redriven"] = redrive_selected(queue, letters.filter("error = 'odd'")).redriven
    print(json.dumps(told))
finally:
    spark.stop()
"""


def test_on_connect_the_same_happens(queue: RedisMessageQueue, numbers: Numbers, tmp_path: Path) -> None:
    numbers(4)
    with queue.claim(4) as lease:
        lease.bury(lease.messages[:3], error="odd")
        lease.bury(lease.messages[3:], error="even")
    wanted = numbers(30)

    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, queue.spec().to_json()],
        env={
            **os.environ,
            "PYSPARK_PYTHON": sys.executable,
            "SPARK_CONF_DIR": str(spark_defaults(tmp_path)),
            "SPARK_LOCAL_IP": "127.0.0.1",
            "SPARK_TESTING": "1",  # the server listens on a free port instead of a fixed one
        },
        cwd=tmp_path,
        text=True,
        capture_output=True,
        timeout=380,
        check=False,
    )

    assert (done.returncode, bool(done.stdout)) == (0, True), done.stderr
    assert json.loads(done.stdout.strip().splitlines()[-1]) == {
        "session": "pyspark.sql.connect.session",
        "numbers": wanted,
        "acked": 10,
        "left": 20,
        "dead": 4,
        "redriven": 3,
    }
    assert (queue.stats().acked, queue.depth().in_flight, queue.depth().ready, queue.depth().dead) == (10, 0, 23, 1)
