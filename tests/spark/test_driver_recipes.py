"""The recipes whose driver acks: killed between write and ack, or failed there, run again, held against their sinks."""

from __future__ import annotations

import json
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import redis
from deltalake import DeltaTable
from deltalake.exceptions import CommitFailedError

from sluicegate import RedisMessageQueue
from tests.spark.recipes import order, recipe
from tests.support import state
from tests.support.project import ROOT
from tests.support.servers import PROGRAMS, RedisServer

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
            cwd=ROOT,
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
    """Return how often each message is in the Parquet files below a folder."""
    names = ("id", "message_id")
    tables = [pq.read_table(file, partitioning=None) for file in folder.rglob("*.parquet")]
    columns = [table.column(next(name for name in names if name in table.column_names)) for table in tables]
    return Counter(name for column in columns for name in column.to_pylist())


def in_delta(table: Path) -> Counter[str]:
    """Return how often each message is in a Delta table."""
    return Counter(DeltaTable(table).to_pyarrow_table(columns=["id"])["id"].to_pylist())


def in_database(folder: Path) -> dict[str, float]:
    """Return the totals per customer."""
    with closing(sqlite3.connect(folder / "totals.db")) as connection:
        return dict(connection.execute("SELECT customer, sum(amount) FROM totals GROUP BY customer"))


def totals(numbers: Iterable[int]) -> Counter[str]:
    """Return the expected totals."""
    expected: Counter[str] = Counter()
    for number in numbers:
        expected[order(number)["customer"]] += order(number)["amount"]
    return expected


def failing(write: Callable[..., object]) -> Callable[..., None]:
    """Return a write that does all it should, and reports a failure."""

    def write_and_fail(*arguments: object, **options: object) -> None:
        write(*arguments, **options)
        raise OSError("the answer was lost")

    return write_and_fail


def publish(queue: RedisMessageQueue, first: int, count: int) -> Counter[str]:
    """Orders from a number on; returns what a sink has of them."""
    report = queue.publish_many(map(order, range(first, first + count)))
    assert report.accepted == count
    return Counter(report.ids)


def forget_what_was_done(queue: RedisMessageQueue, client: redis.Redis) -> None:
    """Delete the records of what a run acked, as if a day had passed."""
    closed = list(client.scan_iter(f"sluicegate:{{{queue.name}}}:closed:*"))
    assert client.delete(*closed) == len(closed) > 0


@pytest.mark.full
def test_a_batch_in_parquet(crashed: Crashed, spark: SparkSession) -> None:
    sink = crashed.folder / "parquet"
    once = Counter(crashed.ids["parquet"])
    assert in_files(sink) == once  # written, and not acked

    assert recipe("parquet_by_batch").main(spark, crashed.queues["parquet"], "nightly", sink) == COUNT

    assert in_files(sink) == once
    crashed.check_done("parquet")
    assert recipe("parquet_by_batch").main(spark, crashed.queues["parquet"], "nightly", sink) == 0


@pytest.mark.full
def test_a_batch_in_delta(crashed: Crashed, spark: SparkSession) -> None:
    sink = crashed.folder / "delta"
    once = Counter(crashed.ids["delta"])
    assert in_delta(sink) == once

    assert recipe("delta_by_transaction").main(spark, crashed.queues["delta"], "nightly", str(sink)) == COUNT

    assert in_delta(sink) == once
    assert DeltaTable(sink).version() == 0  # nothing was committed besides
    crashed.check_done("delta")
    assert recipe("delta_by_transaction").main(spark, crashed.queues["delta"], "nightly", str(sink)) == COUNT
    assert in_delta(sink) == once  # a finished run reports what it did


@pytest.mark.full
def test_a_stream_in_two_sinks(crashed: Crashed, spark: SparkSession) -> None:
    sink = crashed.folder / "stream"
    once = Counter(crashed.ids["stream"])
    expected = totals(range(COUNT))
    assert (in_files(sink / "archive"), in_database(sink)) == (once, expected)
    assert not list((sink / "checkpoint" / "commits").glob("[0-9]*"))  # Spark does not know that it was done

    recipe("foreach_batch").main(spark, crashed.queues["stream"], sink)

    assert (in_files(sink / "archive"), in_database(sink)) == (once, expected)
    crashed.check_done("stream")


def test_a_failed_write_of_parquet_is_repeated_in_its_place_and_no_other_is(
    spark: SparkSession, queue: RedisMessageQueue, client: redis.Redis, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from pyspark.sql import DataFrameWriter

    def run() -> int:
        written = recipe("parquet_by_batch").main(spark, queue, "nightly", tmp_path)
        assert isinstance(written, int)
        return written

    once = publish(queue, 0, 20)
    with monkeypatch.context() as patch:
        patch.setattr(DataFrameWriter, "parquet", failing(DataFrameWriter.parquet))
        with pytest.raises(OSError, match="the answer was lost"):
            run()
    assert queue.depth().in_flight == 20, "nothing is acked, nothing is given back"
    assert in_files(tmp_path) == once

    assert run() == 20
    assert in_files(tmp_path) == once
    once += publish(queue, 20, 5)
    assert run() == 5, "goes on behind what it has done"
    assert in_files(tmp_path) == once
    forget_what_was_done(queue, client)
    once += publish(queue, 25, 5)
    assert run() == 5
    assert in_files(tmp_path) == once, "the same names, and other files"


def test_a_failed_write_to_delta_is_seen_to_be_there_and_one_that_did_nothing_is_not(
    spark: SparkSession, queue: RedisMessageQueue, client: redis.Redis, tmp_path: Path
) -> None:
    def run(run_id: str, write: Callable[[Callable[..., None]], Callable[..., None]] | None = None) -> int:
        module = recipe("delta_by_transaction")
        if write is not None:
            module.write_deltalake = write(module.write_deltalake)
        appended = module.main(spark, queue, run_id, str(tmp_path))
        assert isinstance(appended, int)
        return appended

    once = publish(queue, 0, 20)
    with pytest.raises(OSError, match="the answer was lost"):
        run("monday", failing)
    assert queue.depth().in_flight == 20, "nothing is acked, nothing is given back"
    assert run("monday") == 20
    assert in_delta(tmp_path) == once

    once += publish(queue, 20, 5)
    with pytest.raises(OSError, match="the answer was lost"):
        run("tuesday", lambda write: failing(lambda *given, **options: None))
    once += publish(queue, 25, 5)
    assert run("wednesday") == 5
    assert run("tuesday") == 5, "older than what is there, and not there"
    assert in_delta(tmp_path) == once

    forget_what_was_done(queue, client)
    once += publish(queue, 30, 5)
    assert run("monday") == 5
    assert in_delta(tmp_path) == once, "the same run with other messages"


def test_two_who_append_the_same_to_delta_do_so_once(tmp_path: Path) -> None:
    rows = pa.table({"id": ["a", "b"]})
    table = str(tmp_path)
    assert recipe("delta_by_transaction").append_once(table, pa.table({"id": ["first"]}), "another", 1)
    slower = recipe("delta_by_transaction")
    write = slower.write_deltalake

    def overtaken(*given: object, **options: object) -> None:
        assert recipe("delta_by_transaction").append_once(table, rows, "orders", 1)
        write(*given, **options)

    slower.write_deltalake = overtaken
    with pytest.raises(CommitFailedError):
        slower.append_once(table, rows, "orders", 1)

    assert in_delta(tmp_path) == Counter(["first", "a", "b"])
    assert not recipe("delta_by_transaction").append_once(table, rows, "orders", 1)


@pytest.mark.full  # the other recipes stand for it in the quick lane
def test_a_stream_repeats_the_batch_that_failed_and_replaces_no_other(
    spark: SparkSession, queue: RedisMessageQueue, tmp_path: Path
) -> None:
    def run() -> None:
        recipe("foreach_batch").main(spark, queue, tmp_path)

    once = publish(queue, 0, 20)
    (tmp_path / "totals.db").mkdir()  # no file: the archive is written, and then nothing else can be
    with pytest.raises(Exception, match="unable to open database file"):
        run()
    assert queue.depth().in_flight == 20, "nothing is acked"
    assert in_files(tmp_path / "archive") == once
    (tmp_path / "totals.db").rmdir()

    run()
    assert (in_files(tmp_path / "archive"), in_database(tmp_path)) == (once, totals(range(20)))
    once += publish(queue, 20, 5)
    run()
    assert (in_files(tmp_path / "archive"), in_database(tmp_path)) == (once, totals(range(25))), "the next batch"
    shutil.rmtree(tmp_path / "checkpoint")
    once += publish(queue, 25, 5)
    run()
    assert (in_files(tmp_path / "archive"), in_database(tmp_path)) == (once, totals(range(30))), "batch 0 once more"
