"""A schema that is inferred from a sample is the one that Spark's JSON reader infers, and nothing is changed."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

import sluicegate
from sluicegate import RedisMessageQueue, RedisStreamQueue
from sluicegate.errors import ConfigurationError
from sluicegate.spark import infer_schema, lease_batch

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tests.support.servers import RedisServer

PAYLOADS: list[list[bytes]] = [
    [b'{"a":1,"b":null,"c":[],"d":{"x":1}}', b'{"a":2.5,"c":[1,null],"d":{"y":"s"}}', b'{"a":"t","e":"","f":true}'],
    [b'{"f":"x","g":[{"p":1},{"q":[1.5]}],"h":{}}', b'{"f":true,"h":{"i":{}}}', b'{"j":[{}],"k":[[]]}'],
    [b'{"n":12345678901234567890,"m":9223372036854775807,"l":9999999999999999999}', b'{"n":1,"l":2}'],
    [b'{"n":1234567890123456789012345678901234567890}', b'{"n":12345678901234567890123}'],
    [b'{"m":-9223372036854775809,"k":-12345678901234567890}', b'{"m":0.5,"k":12345678901234567890123456789}'],
    [b'{"n":12345678901234567890123}', b'{"n":1.5}', b'{"m":1e400}'],
    [b'{"a":[1,"x"],"b":[1,2.5],"c":[true,null],"d":[[1],["x"]],"e":[{"x":1},5]}', b'{"a":{"x":1},"b":3}'],
    [b'{"b":{"z":1,"a":{"q":null}},"a":0}', b'{"b":{"z":false,"a":{"q":""}}}', b"{}"],
    ['{"ä ö":1,"a.b":{"c-d":2},"`":3,"select":4}'.encode()],
    [b'{"t":"2024-01-31T12:00:00Z","d":"2024-01-31","s":"1"}', b'{"t":null}'],
]


def publish(queue: RedisMessageQueue, payloads: list[bytes]) -> None:
    """Publish payloads as they are."""
    queue.publish_many(payloads)


def test_a_sample_makes_a_schema_that_prints_as_ddl(queue: RedisMessageQueue) -> None:
    publish(queue, [b'{"n":1,"s":"x"}', b'{"n":2.5,"items":[{"sku":"a"}]}', b"no JSON", b"[1]", b'{"never":"seen"}'])
    before = queue.depth()

    schema = infer_schema(queue, sample=4)

    assert str(schema) == "items array<struct<sku: string>>, n double, s string"
    assert (schema.sampled, schema.unreadable) == (4, 2)
    after = queue.depth()
    assert replace(after, oldest_ready_age_seconds=before.oldest_ready_age_seconds) == before
    assert schema.arrow == pa.schema(
        [
            ("items", pa.list_(pa.field("element", pa.struct([("sku", pa.string())])))),
            ("n", pa.float64()),
            ("s", pa.string()),
        ]
    )


def test_names_of_the_messages_own_columns_are_left_out(queue: RedisMessageQueue) -> None:
    publish(queue, [b'{"message_id":7,"message_text":"x"}'])

    assert infer_schema(queue) == "message_text string"


def test_values_without_a_common_type_make_a_string(queue: RedisMessageQueue) -> None:
    publish(queue, [b'{"a":1,"b":[true],"c":1}', b'{"a":"x","b":{},"c":12345678901234567890123}'])

    assert infer_schema(queue) == "a string, b string, c decimal(23,0)"


def test_a_plain_drain_takes_the_schema(queue: RedisMessageQueue) -> None:
    publish(queue, [b'{"n":1,"s":"x"}', b'{"n":2}'])
    seen: list[list[Any]] = []

    sluicegate.drain(queue, lambda batch: seen.append(batch["n"].to_pylist()), schema=infer_schema(queue).arrow)

    assert seen == [[1, 2]]


def test_other_states_and_groups_are_sampled_too(server: RedisServer, queue: RedisMessageQueue) -> None:
    publish(queue, [b'{"dead":1}'])
    with queue.claim() as lease:
        lease.bury()
    assert infer_schema(queue, state="dead") == "dead bigint"

    stream = RedisStreamQueue("payments", url=server.url)
    group = stream.group("billing")
    group.create("beginning")
    stream.publish_many([{"n": n} for n in range(5)])
    assert infer_schema(group, sample=3).sampled == 3
    stream.close()


@pytest.mark.parametrize(
    ("payloads", "given", "error"),
    [
        ([], {}, "has no messages"),
        ([b"[1]", b"{}"], {}, "no JSON object with a field among 2 messages"),
        ([b'{"n":1}'], {"sample": 0}, "sample"),
        ([b'{"n":1}'], {"state": "gone"}, "state must be one of"),
    ],
)
def test_what_makes_no_schema_is_refused(
    queue: RedisMessageQueue, payloads: list[bytes], given: dict[str, Any], error: str
) -> None:
    publish(queue, payloads)

    with pytest.raises(ConfigurationError, match=error):
        infer_schema(queue, **given)


@pytest.mark.spark
@pytest.mark.timeout(180)
def test_types_are_those_that_spark_infers(spark: SparkSession, queue: RedisMessageQueue) -> None:
    rows = [b'{"set%d":%b}' % (number, payload) for number, payloads in enumerate(PAYLOADS) for payload in payloads]
    publish(queue, rows)

    schema = infer_schema(queue)

    texts = spark.sparkContext.parallelize([row.decode() for row in rows], 1)  # all in one job
    assert schema.struct == spark.read.json(texts).schema
    queue.purge("pending")
    publish(queue, PAYLOADS[-2])
    with lease_batch(spark, queue, 10, schema=infer_schema(queue)) as batch:
        (row,) = batch.df.select("`ä ö`", "`a.b`", "select").collect()
        assert row.asDict(recursive=True) == {"ä ö": 1, "a.b": {"c-d": 2}, "select": 4}
