"""Strings and variants take any JSON: a string its text, byte for byte as published, a variant its value."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql.types import (
    ArrayType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    VariantType,
    VariantVal,
)

from sluicegate import RedisMessageQueue
from sluicegate.errors import ConfigurationError
from sluicegate.spark import SluicegateDataSource, drain, lease_batch, options
from sluicegate.tables.columns import Columns
from sluicegate.tables.raw_json import reshaped
from tests.spark.harness import Load
from tests.spark.test_columns import SMALL, messages, one, refused, rows

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

S = pa.string()


@pytest.mark.parametrize(
    ("kind", "text", "value"),
    [
        (S, '{ "x" :1.50,\n"y":[ ] }', '{ "x" :1.50,\n"y":[ ] }'),
        (S, "[1, 2.0e3]", "[1, 2.0e3]"),
        (S, "-0.0", "-0.0"),
        (S, "123456789012345678901234567890", "123456789012345678901234567890"),
        (S, "true", "true"),
        (S, '"a\\u0041\\n"', "aA\n"),
        (S, '{"x":"\\u00fc ü \\ud83d"}', '{"x":"\\u00fc ü \\ud83d"}'),
        (S, "null", None),
        (pa.list_(S), '[1, {"y" :2}, "t", null, true, []]', ["1", '{"y" :2}', "t", None, "true", "[]"]),
        (pa.struct([("x", S), ("n", pa.int64())]), '{"x": [1 ], "n": 2, "z": 0}', {"x": "[1 ]", "n": 2}),
        (pa.map_(S, S), '{"k": {"v": 1.0}, "l": "t", "k2": null}', [("k", '{"v": 1.0}'), ("l", "t"), ("k2", None)]),
        (pa.map_(S, pa.int64()), '{"k": 1, "k": 2}', [("k", 2)]),
        (pa.list_(pa.struct([("m", pa.map_(S, S))])), '[{"m": {"k": [ 1]}}]', [{"m": [("k", "[ 1]")]}]),
    ],
)
def test_any_json_fits_a_string_as_it_was_published(kind: pa.DataType, text: str, value: object) -> None:
    assert one(kind, text) == value


def test_texts_and_raw_json_stand_in_one_batch() -> None:
    batch = [b'{"a":1,"b":"x"}', b'{"b":{"c" : 1},"a":2}', b'{"a":3}', b'{"b":null}']

    assert [row["b"] for row in rows(SMALL, *batch)] == ["x", '{"c" : 1}', None, None]
    assert refused(SMALL, *batch, b'{"a":"x","b":1}', b'{"b":{"c":1}', b'{"b":1} {"b":2}').positions == (4, 5, 6)


@pytest.mark.parametrize(
    "payload",
    [
        b'{"b":1,"b":2}',
        b'{"b":[1,]}',
        b'{"b":{"c":NaN}}',
        b'{"b":1,}',
        b'{"b" 1}',
        b'{"b":1;"a":2}',
        b'{"b":1}}',
        b"{b:1}",
        b'{"b":}',
        b'{"b":1e400}',
        b'{"b":[' + b"[" * 100_000 + b"]}",
        b'{"b":{"c":"\xff"}}',
        b'[{"b":1}]',
        b'{"b":1',
    ],
)
def test_what_is_not_one_json_object_fits_no_string(payload: bytes) -> None:
    assert refused(SMALL, b'{"b":7}', payload).positions == (1,)


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63)
    | st.floats(allow_nan=False, allow_infinity=False, width=32)
    | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=8,
)


@settings(max_examples=60, deadline=None)
@given(st.dictionaries(st.sampled_from(["a", "b", "c", ""]), JSON), st.sampled_from([None, 1]), st.booleans())
def test_a_payload_cut_at_its_values_is_the_same_values(value: dict[str, Any], indent: int | None, raw: bool) -> None:
    payload = json.dumps(value, indent=indent, ensure_ascii=raw).encode(errors="surrogatepass")
    try:
        payload.decode()
    except UnicodeDecodeError:
        return
    wanted = [pa.field("a", pa.int64()), pa.field("b", S)]

    found = json.loads(reshaped(payload, wanted))

    assert found.keys() == value.keys() & {"a", "b"}
    assert found.get("a") == value.get("a")
    if value.get("b") is None or isinstance(value["b"], str):
        assert found.get("b") == value.get("b")
    else:
        assert json.loads(found["b"]) == value["b"]
        assert found["b"].encode() in payload


# ---------------------------------------------------------------------- variants

V = StructType(
    [
        StructField("v", VariantType()),
        StructField("l", ArrayType(VariantType())),
        StructField("s", StructType([StructField("x", VariantType()), StructField("n", LongType())])),
        StructField("m", MapType(StringType(), VariantType())),
    ]
)


def value_of(variant: dict[str, bytes] | None) -> Any:
    """Return a variant as Python's value, and "missing" for null."""
    return "missing" if variant is None else VariantVal(variant["value"], variant["metadata"]).toPython()


def test_variants_hold_the_value_wherever_they_stand() -> None:
    table = Columns.of(V, message_columns=False, variants=True).table(
        messages(b'{"v":{"a":[1,"x",null]},"l":[1,null],"s":{"x":"y","n":2},"m":{"k":{"z":1}}}', b'{"v":null}')
    )
    table.validate(full=True)

    first, second = table.to_pylist()
    assert value_of(first["v"]) == {"a": [1, "x", None]}
    assert [value_of(item) for item in first["l"]] == [1, None]
    assert (value_of(first["s"]["x"]), first["s"]["n"]) == ("y", 2)
    assert [(key, value_of(item)) for key, item in first["m"]] == [("k", {"z": 1})]
    assert value_of(second["v"]) is None  # JSON's null is a variant, as from_json makes it
    assert (second["l"], second["s"], second["m"]) == (None, None, None)


def test_a_handler_gets_no_variants() -> None:
    with pytest.raises(ConfigurationError, match="'s' is or holds a variant, which only Spark reads; declare string"):
        Columns.of(StructType([V.fields[2]]))


def test_a_read_without_a_session_takes_variants(queue: RedisMessageQueue) -> None:
    queue.publish({"v": {"a": 1.5}})

    (row,) = Load(SluicegateDataSource, options(queue), StructType([V.fields[0]])).collect().to_pylist()

    assert value_of(row["v"]) == {"a": 1.5}


@pytest.mark.spark
@pytest.mark.timeout(180)
def test_spark_reads_variants_and_raw_json(spark: SparkSession, queue: RedisMessageQueue, tmp_path: Path) -> None:
    queue.publish_many(
        [
            b'{"v": {"a": [1, 2.50, "x"]}, "s": {"b" : 1.50}}',
            b'{"v": null, "s": "text"}',
            b'{"s": 7}',
        ]
    )
    with lease_batch(spark, queue, 10, schema="v variant, s string") as batch:
        found = batch.df.selectExpr("variant_get(v, '$.a[1]', 'double')", "is_variant_null(v)", "v IS NULL", "s")
        assert [tuple(row) for row in found.collect()] == [
            (2.5, False, False, '{"b" : 1.50}'),
            (None, True, False, "text"),
            (None, False, True, "7"),
        ]
        raw = batch.df.selectExpr("try_parse_json(s) AS p", "s").where("s LIKE '{%'")
        assert raw.selectExpr("variant_get(p, '$.b', 'double')").first() == (1.5,)

    def keep(batch: pa.Table) -> None:
        (tmp_path / "seen").write_text(json.dumps(batch["s"].to_pylist()))

    summary = drain(spark, queue, keep, schema="s string", partitions=1)
    seen = json.loads((tmp_path / "seen").read_text())
    assert (seen, summary.acked) == (['{"b" : 1.50}', "text", "7"], 3)
