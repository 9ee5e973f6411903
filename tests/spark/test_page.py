"""The code of docs/spark.md, run as it stands in the order of the page, on one queue."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq
import pytest
import redis

from sluicegate import RedisMessageQueue
from sluicegate.spark import SluicegateDataSource
from tests.support import state
from tests.support.snippets import snippet

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tests.support.servers import RedisServer

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]


def test_what_the_page_shows_runs_and_does_what_it_says(
    spark: SparkSession,
    queue: RedisMessageQueue,
    client: redis.Redis,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
) -> None:
    names: dict[str, Any] = {"spark": spark, "queue": queue, "folder": tmp_path, "__name__": "page"}

    def run(name: str) -> None:
        exec(compile(snippet(name), name, "exec"), names)  # noqa: S102  (it is ours, and is shown to be run)

    run("spark-write")
    assert queue.depth().ready == 1000
    run("spark-write")
    assert queue.depth().ready == 1000  # the keys are held
    queue.publish({"order_id": "bad", "amount": -1})

    run("spark-drain")
    assert (names["summary"].acked, names["summary"].buried) == (1000, 1)

    spark.sql(snippet("spark-sql").replace("redis://redis.internal:6379/0", queue.spec().url or ""))
    (row,) = spark.sql("SELECT * FROM dead_orders").collect()
    assert (row["reason"], row["error"]) == ("buried", "negative amount")
    run("spark-dead")
    assert names["report"].redriven == 1
    assert capfd.readouterr().out.splitlines()[-2:] == ["0 orders wait", "1 orders go back"]

    for statement in snippet("spark-insert").split(";"):
        spark.sql(statement.replace("redis://redis.internal:6379/0", queue.spec().url or ""))
    assert [message.json()["order_id"] for message in queue.peek(9)] == ["bad", "o1000"]

    run("spark-stream")
    archived = pq.read_table(tmp_path / "archive", columns=["payload"])["payload"].to_pylist()
    assert archived == [b'{"order_id":"bad","amount":-1}', b'{"order_id":"o1000","amount":5.0}']
    depth = queue.depth()
    assert (depth.ready, depth.in_flight, depth.dead) == (0, 0, 0)
    assert state.counters(client, queue.name)["acked"] == 1002


def test_what_the_page_shows_of_streams(
    spark: SparkSession, server: RedisServer, client: redis.Redis, capfd: pytest.CaptureFixture[str]
) -> None:
    names = {"spark": spark, "url": server.url, "__name__": "page"}
    spark.dataSource.register(SluicegateDataSource)

    exec(compile(snippet("spark-streams"), "spark-streams", "exec"), names)  # noqa: S102  (it is ours)

    assert capfd.readouterr().out.splitlines()[-1] == "100 billed, 100 to be audited"
