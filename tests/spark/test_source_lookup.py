"""By name, without a registration, and from SQL."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from sluicegate import RedisMessageQueue
from sluicegate.spark import options
from tests.draining.helpers import Numbers

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


def create_view(spark: SparkSession, name: str, given: dict[str, str]) -> None:
    listed = ", ".join(f"`{key}` '{value}'" for key, value in given.items())
    spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW {name} USING sluicegate OPTIONS ({listed})")


def test_a_view_reads_the_queue_as_it_is_now_and_leaves_it_alone(
    queue: RedisMessageQueue, numbers: Numbers, spark: SparkSession
) -> None:
    numbers(30)
    create_view(spark, "orders", options(queue))

    counted = spark.sql(
        "SELECT count(*) AS n, min(get_json_object(cast(payload AS string), '$.n')) FROM orders"
    ).first()
    late = spark.sql("SELECT id FROM orders WHERE sequence > 20").count()

    assert counted is not None
    assert (counted[0], counted[1], late) == (30, "0", 10)
    assert (queue.depth().ready, queue.depth().leases) == (30, 0)


def test_an_insert_publishes_into_the_queue_of_the_view(queue: RedisMessageQueue, spark: SparkSession) -> None:
    create_view(spark, "sink", options(queue))

    spark.sql("INSERT INTO sink SELECT * FROM sink WHERE 1 = 0")
    assert queue.depth().ready == 0

    queue.publish_many({"n": n} for n in range(3))
    create_view(spark, "waiting", options(queue))
    target = RedisMessageQueue(f"{queue.name}-copy", url=queue.spec().url)
    create_view(spark, "copy", options(target))
    spark.sql("INSERT INTO copy SELECT * FROM waiting")

    assert sorted(message.json()["n"] for message in target.peek(10)) == [0, 1, 2]
    assert queue.depth().ready == 3
    target.purge("pending")
