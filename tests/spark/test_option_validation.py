"""What is refused as soon as Spark has the options, before they stand in a plan; and what no text of Spark shows."""

from __future__ import annotations

import pickle
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark import cloudpickle

from sluicegate import ConfigurationError, Message, QueueSpec, RedisMessageQueue
from sluicegate.spark import SluicegateDataSource, dead_letters, drain, options, redrive_selected
from tests.draining.helpers import drain_here
from tests.support.flavours import MakeQueue
from tests.support.servers import RedisServer

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PASSWORD = "hunter2"
URL = f"redis://user:{PASSWORD}@127.0.0.1:1/0"
SPEC = QueueSpec("orders", URL, {}).to_json()
PLACE = {"url": URL, "queue": "orders"}
Use = Callable[["SparkSession"], object]
USES: dict[str, Use] = {
    "a read": lambda spark: spark.read.format("sluicegate").options(**PLACE).load(),
    "a read of a spec": lambda spark: spark.read.format("sluicegate").option("spec", SPEC).load(),
    "a read with a schema, which Spark makes at its first action": lambda spark: (
        spark.read.format("sluicegate").schema("n int").options(**PLACE).load().count()
    ),
    "a stream": lambda spark: spark.readStream.format("sluicegate").options(**PLACE, consumer="etl").load(),
    "a view": lambda spark: spark.sql(
        f"CREATE TEMPORARY VIEW secret USING sluicegate OPTIONS (url '{URL}', queue 'orders')"
    ),
    "a write": lambda spark: spark.range(1).write.format("sluicegate").mode("append").options(**PLACE).save(),
}


@pytest.mark.spark
@pytest.mark.timeout(300)  # the first of them starts the session
@pytest.mark.parametrize("use", USES)
def test_a_password_is_refused_and_shown_nowhere(spark: SparkSession, use: str) -> None:
    from pyspark.errors import PySparkException

    spark.dataSource.register(SluicegateDataSource)

    with pytest.raises(PySparkException, match=r"\?password_env=NAME") as caught:
        USES[use](spark)

    assert PASSWORD not in "".join(traceback.format_exception(caught.value))


NOWHERE = {"url": "redis://127.0.0.1:1/0", "queue": "orders"}
UNREACHED: dict[str, Callable[[SparkSession, str], object]] = {
    "a read": lambda spark, _: spark.read.format("sluicegate").options(**NOWHERE).load().count(),
    "a write": lambda spark, _: spark.range(1).write.format("sluicegate").mode("append").options(**NOWHERE).save(),
    "a stream": lambda spark, folder: (
        spark.readStream.format("sluicegate")
        .options(**NOWHERE, consumer="etl")
        .load()
        .writeStream.format("noop")
        .option("checkpointLocation", folder)
        .trigger(availableNow=True)
        .start()
        .awaitTermination()
    ),
}


@pytest.mark.spark
@pytest.mark.parametrize("use", UNREACHED)
def test_an_unreachable_redis_ends_the_planning_and_no_job_starts(
    spark: SparkSession, use: str, tmp_path: Path
) -> None:
    from pyspark.errors import PySparkException

    spark.dataSource.register(SluicegateDataSource)
    spark.sparkContext.setJobGroup(use, use)

    with pytest.raises(PySparkException, match=r"RedisUnavailableError: .*127\.0\.0\.1:1") as caught:
        UNREACHED[use](spark, str(tmp_path))

    assert str(caught.value).count("Traceback") == 1
    assert list(spark.sparkContext.statusTracker().getJobIdsForGroup(use)) == []


@pytest.mark.spark
def test_a_table_over_a_queue_cannot_be_read_and_says_what_can(spark: SparkSession, queue: RedisMessageQueue) -> None:
    """A source does not learn from Spark that it writes a table, nor, when that is read, the table's options."""
    from pyspark.errors import PySparkException

    rows = spark.range(3).write.format("sluicegate").mode("append").options(**options(queue))
    rows.saveAsTable("orders_table")
    try:
        with pytest.raises(PySparkException, match="hands to no data source in Python: use CREATE TEMPORARY VIEW"):
            spark.table("orders_table").count()
    finally:
        spark.sql("DROP TABLE orders_table")
    with pytest.raises(PySparkException, match="a queue has no path"):
        rows.save("/tmp/orders")
    assert queue.depth().ready == 3


@pytest.mark.parametrize(
    ("raw", "reported"),
    [
        ({"url": "redis://localhost", "queue": "orders", "STATE": "gone"}, "option state must be one of pending, "),
        ({"URL": URL, "queue": "orders"}, r"\?password_env=NAME"),
        ({"spec": SPEC, "queue": "orders"}, "option spec names the queue whole"),
        ({"spec": "{"}, "a queue spec is JSON as"),
    ],
)
def test_what_cannot_be_right_for_any_use_is_refused_at_once(raw: dict[str, str], reported: str) -> None:
    with pytest.raises(ConfigurationError, match=reported):
        SluicegateDataSource(raw)


@pytest.mark.parametrize("raw", [{}, {"queue": "orders"}, {"url": "redis://localhost"}, {"anything": "else"}])
def test_what_only_a_use_can_tell_is_left_to_it(raw: dict[str, str]) -> None:
    """`CREATE TABLE` hands no options over, and each use reports which of its own are missing or unknown."""
    source = SluicegateDataSource(raw)

    with pytest.raises(ConfigurationError, match=r"needs the option|has no option"):
        source.reader(source.schema())


@pytest.mark.parametrize(
    ("call", "what"),
    [
        (options, "a queue, a stream or a group of a stream"),
        (lambda queue: dead_letters(None, queue), "a RedisMessageQueue or the group of a stream"),
        (lambda queue: redrive_selected(queue, None), "a RedisMessageQueue or the group of a stream"),
    ],
)
def test_what_is_no_queue_is_a_type_error(call: Callable[[Any], object], what: str) -> None:
    with pytest.raises(TypeError, match=f"queue must be {what}, not a str"):
        call("orders")


def test_a_handler_that_cannot_travel_is_refused_before_any_job(make_queue: MakeQueue, server: RedisServer) -> None:
    drained, other = make_queue(url=server.url), make_queue("other", url=server.url)

    with pytest.raises(ConfigurationError, match=r"process cannot be serialized for the executors \(\w+: .*from_spec"):
        drain(None, drained, lambda batch: other.publish_many(message.json() for message in batch))  # type: ignore[arg-type]


def test_a_handler_makes_a_queue_of_its_own_out_of_a_spec(make_queue: MakeQueue, server: RedisServer) -> None:
    drained, other = make_queue(url=server.url), make_queue("other", url=server.url)
    drained.publish_many({"n": n} for n in range(3))
    spec = other.spec()

    def process(batch: list[Message]) -> None:
        RedisMessageQueue.from_spec(spec).publish_many(message.json() for message in batch)

    drain_here(drained, pickle.loads(cloudpickle.dumps(process)))  # noqa: S301  (our own)

    assert sorted(message.json()["n"] for message in other.peek(9)) == [0, 1, 2]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"until": "deadline"}, "needs deadline_seconds"),
        ({"until": "full"}, "until must be"),
        ({"until": 0}, "until must be"),
        ({"until": True}, "until must be"),
        ({"until": 1.5}, "until must be"),
        ({"deadline_seconds": 0}, "deadline_seconds must be a number above 0"),
        ({"deadline_seconds": float("inf")}, "deadline_seconds"),
        ({"deadline_seconds": True}, "deadline_seconds"),
    ],
)
def test_an_end_that_cannot_come_is_refused(queue: RedisMessageQueue, options: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigurationError, match=said):
        drain(None, queue, lambda batch: None, **options)  # type: ignore[arg-type]
