"""Writes of a real Spark: interrupted tasks publish each row once, batches and streams, with and without keys."""

from __future__ import annotations

import os
import signal
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import redis
from pyspark.errors import PySparkException
from pyspark.sql.datasource import DataSource

from sluicegate import RedisMessageQueue
from sluicegate.spark import options
from sluicegate.spark.datasource import SluicegateDataSource
from tests.support import state

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark
ROWS = 4000
BATCH = 500  # rows of one Arrow batch, and so of one call


@pytest.fixture
def session(spark: SparkSession) -> Iterator[SparkSession]:
    """Gives tasks their rows in small batches, so that a fault finds some of them published."""
    spark.dataSource.register(SluicegateDataSource)
    spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", str(BATCH))
    yield spark
    spark.conf.unset("spark.sql.execution.arrow.maxRecordsPerBatch")


def faulty(action: str, marker: Path, partition: int = 0) -> type[DataSource]:
    """Yield a data source whose first attempt at a partition fails when half of its rows are published or being sent.

    The class is nested, so that it is pickled by value; it calls the product's own writer.
    """
    path = str(marker)

    class Faulty(SluicegateDataSource):
        @classmethod
        def name(cls) -> str:
            return "faulty"

        def writer(self, schema: Any, overwrite: bool) -> Any:
            writer = super().writer(schema, overwrite)
            plain = type(writer)

            class FaultyWriter(plain):  # type: ignore[misc, valid-type]
                def write(self, iterator: Any) -> Any:
                    from pyspark.taskcontext import TaskContext

                    context = TaskContext.get()

                    def rows() -> Iterator[Any]:
                        for number, batch in enumerate(iterator):
                            if number == 2 and context.partitionId() == partition and context.attemptNumber() == 0:
                                with open(path, "a") as file:
                                    file.write("x")
                                if action == "kill":
                                    os.kill(os.getpid(), signal.SIGKILL)
                                raise RuntimeError("injected")
                            yield batch

                    return super().write(rows())

            writer.__class__ = FaultyWriter
            return writer

    return Faulty


def frame(spark: SparkSession, rows: int = ROWS) -> DataFrame:
    return spark.range(0, rows, 1, 2).selectExpr("id as n", "concat('row ', id) as text")


def numbers(queue: RedisMessageQueue) -> Counter[int]:
    return Counter(message.json()["n"] for message in queue.peek(100_000))


@pytest.mark.parametrize(
    ("mode", "keys"),
    [("direct", {}), ("direct", {"deduplicationKey": "{n}"}), ("staged", {})],
    ids=["direct", "direct with keys", "staged"],
)
@pytest.mark.parametrize("action", ["raise", "kill"])
def test_a_task_that_dies_in_the_middle_publishes_each_row_once(
    session: SparkSession,
    queue: RedisMessageQueue,
    client: redis.Redis,
    tmp_path: Path,
    action: str,
    mode: str,
    keys: dict[str, str],
) -> None:
    session.dataSource.register(faulty(action, tmp_path / "marker"))
    write = frame(session).write.format("faulty").mode("append").options(**options(queue), **keys)
    write.option("writeMode", mode).option("batchSize", BATCH).save()
    assert (tmp_path / "marker").read_text() == "x", "it died once"
    assert numbers(queue) == Counter(range(ROWS))
    repeated = state.counters(client, queue.name).get("duplicates", 0)
    assert repeated >= BATCH if mode == "direct" else repeated == 0


@pytest.mark.full  # the task that dies in the middle stands for it in the quick lane
def test_a_job_that_fails_is_completed_by_its_write_id(
    session: SparkSession, queue: RedisMessageQueue, tmp_path: Path
) -> None:
    def failing(batches: Any) -> Any:
        for batch in batches:
            yield batch
            if batch["n"][0].as_py() >= BATCH:
                raise ValueError("this input cannot be read")

    write = {"writeId": "night", **options(queue)}
    broken = frame(session).mapInArrow(failing, "n long, text string")
    with pytest.raises(PySparkException, match="this input cannot be read"):
        broken.write.format("sluicegate").mode("append").options(**write).save()
    assert set(numbers(queue).values()) <= {1}
    frame(session).write.format("sluicegate").mode("append").options(**write).save()
    assert numbers(queue) == Counter(range(ROWS))


def test_what_a_task_has_published_is_in_the_error(session: SparkSession, queue: RedisMessageQueue) -> None:
    # One task: a second one would still run in the next test, for a moment after the first has failed the job.
    write = frame(session).coalesce(1).write.format("sluicegate").mode("append").options(**options(queue))
    with pytest.raises(PySparkException) as caught:
        write.option("maxPendingLength", 600).option("batchSize", BATCH).option("writeId", "w").save()
    text = str(caught.value)
    assert "QueueBackpressureError" in text
    assert "write 'w', partition " in text
    assert sum(numbers(queue).values()) == BATCH


@pytest.mark.parametrize("mode", ["direct", "staged"])
def test_a_stream_whose_last_batch_runs_again_adds_nothing(
    session: SparkSession, queue: RedisMessageQueue, tmp_path: Path, mode: str
) -> None:
    """The commit log says what Spark knows to be done: without its last entry the batch is replayed."""
    source, checkpoint = str(tmp_path / "source"), tmp_path / "checkpoint"

    def run() -> None:
        rows = session.readStream.schema("n long, text string").parquet(source)
        write = rows.writeStream.format("sluicegate").options(**options(queue), writeMode=mode)
        query = write.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True).start()
        assert query.awaitTermination(300)

    frame(session, 1000).write.parquet(source)
    run()
    assert numbers(queue) == Counter(range(1000))
    for entry in checkpoint.glob("commits/*0*"):
        entry.unlink()
    for entry in checkpoint.glob("commits/.0*"):
        entry.unlink()
    run()
    assert numbers(queue) == Counter(range(1000))
    frame(session, 10).write.mode("append").parquet(source)
    run()
    assert numbers(queue) == Counter(range(1000)) + Counter(range(10))


def test_sql_publishes_through_a_view(session: SparkSession, queue: RedisMessageQueue) -> None:
    spec = options(queue)["spec"].replace("'", "\\'")
    session.sql(f"CREATE OR REPLACE TEMPORARY VIEW outbox (payload BINARY) USING sluicegate OPTIONS (spec '{spec}')")
    rows = session.range(3).selectExpr("cast(concat('p', id) as binary) as payload")
    rows.createOrReplaceTempView("rows")
    session.sql("INSERT INTO outbox SELECT payload FROM rows")
    assert sorted(message.payload for message in queue.peek(10)) == [b"p0", b"p1", b"p2"]


def test_types_of_spark_as_json(session: SparkSession, queue: RedisMessageQueue) -> None:
    session.sql(
        """SELECT true AS flag, 7Y AS tiny, 1.50BD AS money, 0.5D AS share, 'ü' AS text, X'00ff' AS data,
        DATE'2026-01-02' AS day, TIMESTAMP'2026-01-02 03:04:05+02:00' AS at, TIMESTAMP_NTZ'2026-01-02 03:04:05' AS wall,
        array(1, NULL) AS list, map('k', 1) AS map, named_struct('x', NULL, 'y', 1) AS struct, NULL AS nothing"""
    ).write.format("sluicegate").mode("append").options(**options(queue)).save()
    (message,) = queue.peek()
    assert message.json() == {
        "flag": True, "tiny": 7, "money": "1.50", "share": 0.5, "text": "ü", "data": "AP8=", "day": "2026-01-02",
        "at": "2026-01-02T01:04:05.000000Z", "wall": "2026-01-02T03:04:05.000000", "list": [1, None], "map": {"k": 1},
        "struct": {"x": None, "y": 1}, "nothing": None,
    }  # fmt: skip


@pytest.mark.parametrize("mode", ["overwrite", "ignore"])
def test_only_appending_is_possible(session: SparkSession, queue: RedisMessageQueue, mode: str) -> None:
    with pytest.raises(PySparkException, match=r"cannot be overwritten|SAVE_MODE"):
        frame(session).write.format("sluicegate").mode(mode).options(**options(queue)).save()
    assert queue.depth().ready == 0
