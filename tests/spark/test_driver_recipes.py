"""The recipes whose driver acks: their driver killed between write and ack, run again, held against their sinks."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

from sluicegate import RedisMessageQueue
from tests.conformance import state
from tests.conformance.servers import RedisServer
from tests.conftest import PROGRAMS
from tests.docs.snippets import PROJECT
from tests.spark.recipes import order, recipe

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]
COUNT = 1500


@dataclass(frozen=True)
class Crashed:
    """What a killed driver left.

    Attributes:
        queues: by what their recipe writes.
        ids: of their messages, in order.
        folder: of the sinks.
        server: of the queues.
    """

    queues: dict[str, RedisMessageQueue]
    ids: dict[str, list[str]]
    folder: Path
    server: RedisServer

    def check_done(self, name: str) -> None:
        depth = self.queues[name].depth()
        assert (depth.ready, depth.in_flight, depth.leases, depth.dead) == (0, 0, 0, 0)
        with self.server.client() as client:
            assert state.counters(client, name)["acked"] == COUNT


@pytest.fixture(scope="module")
def crashed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Crashed]:
    """Three recipes at their work, and their driver killed when each has written and none has acked."""
    folder = tmp_path_factory.mktemp("sinks")
    (folder / "stream").mkdir()
    server = RedisServer(PROGRAMS[0]).start()
    queues = {name: RedisMessageQueue(name, url=server.url) for name in ("parquet", "delta", "stream")}
    try:
        ids = {name: list(queue.publish_many(map(order, range(COUNT))).ids) for name, queue in queues.items()}
        specs = json.dumps([queue.spec().to_json() for queue in queues.values()])
        done = subprocess.run(
            [sys.executable, "-m", "tests.spark.crashing_driver", specs, str(folder)],
            cwd=PROJECT,
            env={**os.environ, "PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"},
            capture_output=True,
            text=True,
            timeout=500,
            check=False,
        )
        assert done.returncode == -signal.SIGKILL, done.stderr
        for name, queue in queues.items():
            depth = queue.depth()
            assert (depth.in_flight, depth.pending) == (COUNT, 0), name
        yield Crashed(queues, ids, folder, server)
    finally:
        for queue in queues.values():
            queue.close()
        server.remove()


def in_files(folder: Path) -> Counter[str]:
    """How often each message is in the Parquet files below a folder."""
    names = ("id", "message_id")
    tables = [pq.read_table(file, partitioning=None) for file in folder.rglob("*.parquet")]
    columns = [table.column(next(name for name in names if name in table.column_names)) for table in tables]
    return Counter(name for column in columns for name in column.to_pylist())


def test_a_batch_in_parquet(crashed: Crashed, spark: SparkSession) -> None:
    sink = crashed.folder / "parquet"
    once = Counter(crashed.ids["parquet"])
    assert in_files(sink) == once  # written, and not acked

    assert recipe("parquet_by_batch").main(spark, crashed.queues["parquet"], "nightly", sink) == COUNT

    assert in_files(sink) == once
    crashed.check_done("parquet")
    assert recipe("parquet_by_batch").main(spark, crashed.queues["parquet"], "nightly", sink) == 0


def test_a_batch_in_delta(crashed: Crashed, spark: SparkSession) -> None:
    def rows() -> Counter[str]:
        return Counter(DeltaTable(sink).to_pyarrow_table(columns=["id"])["id"].to_pylist())

    sink = str(crashed.folder / "delta")
    once = Counter(crashed.ids["delta"])
    assert rows() == once

    assert recipe("delta_by_transaction").main(spark, crashed.queues["delta"], "nightly", sink) == COUNT

    assert rows() == once
    assert DeltaTable(sink).version() == 0  # nothing was committed besides
    crashed.check_done("delta")
    crashed.queues["delta"].publish_many(map(order, range(COUNT, COUNT + 10)))
    assert recipe("delta_by_transaction").main(spark, crashed.queues["delta"], "next night", sink) == 10
    assert len(rows()) == COUNT + 10  # and the next batch is not taken for one that is there


def test_a_stream_in_two_sinks(crashed: Crashed, spark: SparkSession) -> None:
    def totals() -> dict[str, float]:
        with closing(sqlite3.connect(sink / "totals.db")) as connection:
            return dict(connection.execute("SELECT customer, sum(amount) FROM totals GROUP BY customer"))

    sink = crashed.folder / "stream"
    once = Counter(crashed.ids["stream"])
    expected: Counter[str] = Counter()
    for number in range(COUNT):
        expected[order(number)["customer"]] += order(number)["amount"]
    assert (in_files(sink / "archive"), totals()) == (once, expected)
    assert not list((sink / "checkpoint" / "commits").glob("[0-9]*"))  # Spark does not know that it was done

    recipe("foreach_batch").main(spark, crashed.queues["stream"], sink)

    assert (in_files(sink / "archive"), totals()) == (once, expected)
    crashed.check_done("stream")
