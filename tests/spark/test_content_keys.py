"""Rows that are named by their content stay duplicates when a repeat cuts them into other partitions."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException

from sluicegate import ConfigurationError, RedisMessageQueue
from sluicegate.spark import content_keys, options
from sluicegate.spark._options import WriteOptions
from sluicegate.spark.datasource import SluicegateDataSource
from sluicegate.spark.writing.content import CONTENT_KEY, keys_of_contents
from sluicegate.spark.writing.plan import plan_write
from sluicegate.spark.writing.writer import make_stream_writer
from tests.support.snippets import snippet

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark


@pytest.fixture
def session(spark: SparkSession) -> SparkSession:
    spark.dataSource.register(SluicegateDataSource)
    return spark


def rows(spark: SparkSession) -> DataFrame:
    """Return 300 different rows and 60 that equal one of 20 others, three times each, in two partitions."""
    different = spark.range(0, 300, 1, 2).selectExpr("id as n", "concat('row ', id) as text")
    return different.union(spark.range(0, 60, 1, 2).selectExpr("1000 + id % 20 as n", "'equal' as text"))


EXPECTED = Counter(dict.fromkeys(range(300), 1) | {1000 + n: 3 for n in range(20)})


def write(df: DataFrame, queue: RedisMessageQueue, **more: Any) -> None:
    given = {**options(queue), "writeKey": "content", "writeId": "nightly", **more}
    df.write.format("sluicegate").mode("append").options(**given).save()


def numbers(queue: RedisMessageQueue) -> Counter[int]:
    return Counter(message.json()["n"] for message in queue.peek(100_000))


def test_the_same_rows_in_other_partitions_are_duplicates_and_equal_rows_are_all_published(
    session: SparkSession, queue: RedisMessageQueue
) -> None:
    write(content_keys(rows(session)), queue)
    assert numbers(queue) == EXPECTED

    write(content_keys(rows(session).coalesce(1)).repartition(5), queue)
    assert numbers(queue) == EXPECTED

    more = rows(session).union(rows(session).where("n >= 1010"))
    write(content_keys(more), queue)
    assert numbers(queue) == EXPECTED + Counter({1010 + n: 3 for n in range(10)}), "only what is new is published"
    assert set(queue.peek(1)[0].json()) == {"n", "text"}, "the column of keys is not published"


def test_columns_can_be_left_out_of_a_rows_identity(session: SparkSession, queue: RedisMessageQueue) -> None:
    loaded = rows(session).where("n < 50").selectExpr("n as `row n`", "n", "uuid() as loaded")
    for _ in range(2):
        write(content_keys(loaded, ["row n"]), queue)

    assert numbers(queue) == Counter(range(50))


def test_rows_of_every_type_have_a_key(session: SparkSession) -> None:
    found = content_keys(
        session.sql(
            """SELECT true AS flag, 1.50BD AS money, X'00ff' AS data, DATE'2026-01-02' AS day, double('NaN') AS nan,
            TIMESTAMP'2026-01-02 03:04:05.000001' AS at, TIMESTAMP_NTZ'2026-01-02 03:04:05' AS wall, NULL AS nothing,
            array(1, NULL) AS list, map('k', 1) AS map, named_struct('x', NULL, 'y', 1) AS struct FROM range(2)"""
        )
    ).collect()

    texts = sorted(row[CONTENT_KEY] for row in found)
    assert [text.rpartition(":")[2] for text in texts] == ["1", "2"]
    assert len({text.partition(":")[0] for text in texts}) == 1


def test_without_the_column_a_write_by_content_is_refused_and_says_what_to_write(
    session: SparkSession, queue: RedisMessageQueue
) -> None:
    with pytest.raises(PySparkException, match=r"write sluicegate.spark.content_keys\(df\) instead of df"):
        write(rows(session), queue)
    assert queue.depth().ready == 0


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"deduplicationKey": "{n}"}, "rows that have no deduplication key"),
        ({"writeMode": "staged"}, "published once under its writeId, however it is partitioned"),
    ],
)
def test_what_has_no_effect_is_refused(queue: RedisMessageQueue, more: dict[str, str], words: str) -> None:
    with pytest.raises(ConfigurationError, match=words):
        plan_write(by_content(queue, **more), columns(), overwrite=False)


def test_streams_and_unknown_columns_are_refused(session: SparkSession, queue: RedisMessageQueue) -> None:
    with pytest.raises(ConfigurationError, match="foreachBatch"):
        make_stream_writer(by_content(queue), columns(), overwrite=False)
    with pytest.raises(ConfigurationError, match="foreachBatch"):
        content_keys(session.readStream.format("rate").load())
    with pytest.raises(ConfigurationError, match="has n, text; 'm' was given"):
        content_keys(rows(session), ["n", "m"])
    with pytest.raises(ConfigurationError, match="an empty list was given"):
        content_keys(rows(session), [])


def test_keys_differ_by_write_and_content_and_none_is_made_of_a_null() -> None:
    contents = pa.array(["a:1", "a:2", "b:1"])
    keys = [*keys_of_contents("w", contents), *keys_of_contents("v", contents)]

    assert len(set(keys)) == 6
    assert keys[:3] == keys_of_contents("w", contents)
    with pytest.raises(ConfigurationError, match="is null in 1 rows"):
        keys_of_contents("w", pa.array(["a:1", None]))


def test_the_column_is_not_published_without_the_option_either(session: SparkSession, queue: RedisMessageQueue) -> None:
    write(content_keys(rows(session).limit(3)), queue, writeKey="partition")

    assert [set(message.json()) for message in queue.peek()] == [{"n", "text"}] * 3


def test_the_write_of_the_page_can_be_repeated(session: SparkSession, queue: RedisMessageQueue) -> None:
    for partitions in (1, 2):
        exec(snippet("spark-content-keys"), {"queue": queue, "orders": rows(session).repartition(partitions)})  # noqa: S102

    assert numbers(queue) == EXPECTED


def by_content(queue: RedisMessageQueue, **more: str) -> WriteOptions:
    return WriteOptions.parse({"spec": queue.spec().to_json(), "writeKey": "content", **more})


def columns() -> Any:
    from pyspark.sql.types import LongType, StringType, StructField, StructType

    return StructType([StructField("n", LongType()), StructField(CONTENT_KEY, StringType())])
