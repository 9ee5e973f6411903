"""Rows become messages: JSON out of every type, payloads and headers as they are, keys from columns and templates."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime, time
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import DateType, DayTimeIntervalType, MapType, StringType, StructField, StructType, VariantType

from sluicegate import ConfigurationError
from sluicegate.core.entry import split_entry
from sluicegate.core.publishing import encode_payload
from sluicegate.spark.writing.rows import RowPlan, Rows, plan_rows


def made(table: pa.Table, **options: Any) -> Rows:
    (batch,) = table.combine_chunks().to_batches()
    return plan_rows(from_arrow_schema(table.schema), **options).rows(batch)


def one(value: Any, kind: pa.DataType) -> Any:
    """Return the JSON of a column `c` with this value, behind a null."""
    rows = made(pa.table({"c": pa.array([None, value], kind)}))
    assert rows.payloads[0] == b'{"c":null}'
    return json.loads(rows.payloads[1])["c"]


INSTANT = datetime(2026, 1, 31, 23, 59, 59, 120, tzinfo=UTC)


@pytest.mark.parametrize(
    ("value", "kind", "expected"),
    [
        (True, pa.bool_(), True),
        (-128, pa.int8(), -128),
        (2**63 - 1, pa.int64(), 2**63 - 1),
        (0.5, pa.float32(), 0.5),
        (1e300, pa.float64(), 1e300),
        ("naïve \"text\"\n", pa.string(), "naïve \"text\"\n"),
        ("x", pa.large_string(), "x"),
        (b"\x00\xff", pa.binary(), "AP8="),
        (date(1, 2, 3), pa.date32(), "0001-02-03"),
        (INSTANT, pa.timestamp("us", "UTC"), "2026-01-31T23:59:59.000120Z"),
        (INSTANT, pa.timestamp("us", "Asia/Kolkata"), "2026-01-31T23:59:59.000120Z"),
        (INSTANT.replace(tzinfo=None), pa.timestamp("us"), "2026-01-31T23:59:59.000120"),
        (Decimal("-1.50"), pa.decimal128(38, 2), "-1.50"),
        ([1, None, 3], pa.list_(pa.int32()), [1, None, 3]),
        ([], pa.list_(pa.int32()), []),
        ([[date(2026, 1, 2)], None], pa.list_(pa.list_(pa.date32())), [["2026-01-02"], None]),
        ({"a": 1, "b": {"c": b"x"}}, pa.struct({"a": pa.int8(), "b": pa.struct({"c": pa.binary()})}),
         {"a": 1, "b": {"c": "eA=="}}),
        ({"a": None}, pa.struct({"a": pa.float64()}), {"a": None}),
        ([("k", [1])], pa.map_(pa.string(), pa.list_(pa.int32())), {"k": [1]}),
        ([(7, "x"), (8, None)], pa.map_(pa.int32(), pa.string()), {"7": "x", "8": None}),
    ],
    ids=str,
)  # fmt: skip
def test_the_json_of_a_type(value: Any, kind: pa.DataType, expected: Any) -> None:
    assert one(value, kind) == expected


def test_a_time_of_day() -> None:
    plan = RowPlan(columns=("c",))  # PySpark 4.0 has no such type
    batch = pa.RecordBatch.from_pydict({"c": pa.array([time(1, 2, 3)], pa.time64("ns"))})
    assert plan.rows(batch).payloads == [b'{"c":"01:02:03.000000000"}']


def test_all_columns_as_one_compact_object_in_their_order() -> None:
    table = pa.table({"b": [1, 2], "a": ["x", None], "c d.e": [0.0, None]})
    assert made(table).payloads == [b'{"b":1,"a":"x","c d.e":0.0}', b'{"b":2,"a":null,"c d.e":null}']


def test_a_slice_of_a_batch_gives_its_own_rows() -> None:
    """Nested columns of a slice still carry the values around it."""
    table = pa.table(
        {
            "l": pa.array([[1], None, [2, 3], []], pa.list_(pa.int32())),
            "m": pa.array([[("a", 1)], [], None, [("b", 2)]], pa.map_(pa.string(), pa.int32())),
            "s": pa.array([{"x": [1]}, None, {"x": None}, {"x": [2]}], pa.struct({"x": pa.list_(pa.int32())})),
        }
    )
    (batch,) = table.to_batches()
    plan = plan_rows(from_arrow_schema(table.schema))
    whole = plan.rows(batch).payloads
    assert [json.loads(row) for row in whole] == [
        {"l": [1], "m": {"a": 1}, "s": {"x": [1]}},
        {"l": None, "m": {}, "s": None},
        {"l": [2, 3], "m": None, "s": {"x": None}},
        {"l": [], "m": {"b": 2}, "s": {"x": [2]}},
    ]
    assert [plan.rows(batch.slice(at, 1)).payloads[0] for at in range(4)] == whole


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
@pytest.mark.parametrize(
    ("kind", "path", "wrap"),
    [
        (pa.float64(), "c", lambda value: value),
        (pa.float32(), "c", lambda value: value),
        (pa.struct({"x": pa.list_(pa.float64())}), "c.x[]", lambda value: {"x": [1.0, value]}),
        (pa.map_(pa.string(), pa.float64()), "c{}", lambda value: [("k", value)]),
    ],
)
def test_what_json_has_no_number_for_is_refused_by_column(
    kind: pa.DataType, path: str, wrap: Any, value: float
) -> None:
    with pytest.raises(ValueError, match=r"NaN or an infinity") as caught:
        made(pa.table({"a": [1, 2], "c": pa.array([wrap(0.5), wrap(value)], kind)}))
    assert f"column {path!r}" in str(caught.value)


def test_text_that_is_no_utf8_is_refused_by_column() -> None:
    broken = pa.array([b"\xff"], pa.binary()).view(pa.string())
    with pytest.raises(ValueError, match="column 'c' holds text that is not UTF-8"):
        made(pa.table({"c": broken}))


@pytest.mark.parametrize("kind", [pa.float64(), pa.float32(), pa.list_(pa.float64())], ids=str)
@pytest.mark.parametrize("value", [0.0, -0.0, 1e-4, 9.9e-5, 1e-7, -2.5, 1e15, 1e16, 1e22, 123456789.125])
def test_the_same_bytes_as_a_plain_publish(value: float, kind: pa.DataType) -> None:
    """Whatever shortcut a column allows: the two JSON encoders write very small and very large floats differently."""
    column = pa.array([[value] if pa.types.is_list(kind) else value], kind)
    row = {"f": column.to_pylist()[0], "s": "ü", "n": 2**62}
    assert made(pa.table({"f": column, "s": ["ü"], "n": [2**62]})).payloads == [encode_payload(row)]


# ---------------------------------------------------------------------- payload and headers


@pytest.mark.parametrize("kind", [pa.string(), pa.binary(), pa.large_string(), pa.large_binary()], ids=str)
def test_a_payload_column_is_published_as_it_is(kind: pa.DataType) -> None:
    table = pa.table({"id": [1, 2], "payload": pa.array(["ü{", ""], pa.string()).cast(kind)})
    assert made(table).payloads == ["ü{".encode(), b""]
    named = made(table.rename_columns(["payload_id", "body"]), payload="body")
    assert named.payloads == ["ü{".encode(), b""]


def test_a_payload_column_of_another_type_is_one_field_of_the_json() -> None:
    assert made(pa.table({"payload": [{"a": 1}], "n": [2]})).payloads == [b'{"payload":{"a":1},"n":2}']


def test_a_named_payload_column_of_structs_is_published_as_json() -> None:
    assert made(pa.table({"p": [{"a": 1}], "n": [2]}), payload="p").payloads == [b'{"a":1}']
    with pytest.raises(ConfigurationError, match="payloadColumn 'n' must hold text, binary, structs"):
        made(pa.table({"n": [2]}), payload="n")


def test_a_null_payload_is_refused_by_column() -> None:
    with pytest.raises(ConfigurationError, match=r"payload column 'payload' is null in 1 of 2 rows; filter"):
        made(pa.table({"payload": ["x", None]}))


def test_headers_travel_beside_the_payload() -> None:
    kind = pa.map_(pa.string(), pa.string())
    table = pa.table({"n": [1, 2, 3], "h": pa.array([[("a", "1")], None, []], kind)})
    rows = made(table, headers="h")
    assert rows.payloads == [b'{"n":1}', b'{"n":2}', b'{"n":3}']
    assert rows.headers == [b'{"a":"1"}', b"", b""]
    assert split_entry(b"1" + b"0" * 28 + rows.parts()[0])[1:] == [b"", b'{"a":"1"}', b'{"n":1}']
    with pytest.raises(ValueError, match="headers column 'h' has a null value"):
        made(pa.table({"n": [1], "h": pa.array([[("a", None)]], kind)}), headers="h")
    with pytest.raises(ConfigurationError, match="headersColumn 'n' must be a map<string,string>"):
        made(table, headers="n")


# ---------------------------------------------------------------------- keys


def test_a_key_from_a_column() -> None:
    table = pa.table({"id": [1, 2], "name": ["a:b", "c"]})
    assert made(table, key_column="id").keys == [b"1", b"2"]
    assert made(table, key_column="name").keys == [b"a%3Ab", b"c"]
    assert made(table).keys is None


@pytest.mark.parametrize("source", ["{tenant}:{order.id}", ["tenant", "order.id"]])
def test_a_key_from_a_template_or_fields(source: Any) -> None:
    table = pa.table({"order": [{"id": 7}, {"id": 8}], "tenant": ["acme", "b"], "x": [0.5, None]})
    assert made(table, key_source=source).keys == [b"acme%3A7", b"b%3A8"]


def test_a_key_from_a_date_is_its_json() -> None:
    table = pa.table({"day": pa.array([date(2026, 1, 2)]), "payload": ["x"]})
    assert made(table, key_source="{day}").keys == [b"2026-01-02"]


@pytest.mark.parametrize("options", [{"key_column": "id"}, {"key_source": "{id}"}])
def test_a_missing_key_names_its_column_and_what_to_do(options: dict[str, str]) -> None:
    with pytest.raises(ConfigurationError, match=r"column 'id'.* is null in 2 of 3 rows; give every row a key"):
        made(pa.table({"id": pa.array([None, "secret", None]), "payload": ["x"] * 3}), **options)


def test_an_empty_key_names_its_column() -> None:
    with pytest.raises(ConfigurationError, match=r"column 'id' is empty in 1 of 2 rows; give every row a key"):
        made(pa.table({"id": ["a", ""], "payload": ["x", "y"]}), key_column="id")


# ---------------------------------------------------------------------- refused before any row is read


@pytest.mark.parametrize(
    ("options", "reported"),
    [
        ({"payload": "nope"}, "payloadColumn names the column 'nope'; there are a, b"),
        ({"headers": "nope"}, "headersColumn names the column 'nope'"),
        ({"key_column": "nope"}, "deduplicationKeyColumn names the column 'nope'"),
        ({"key_column": "b"}, "deduplicationKeyColumn 'b' must hold text or whole numbers; cast it"),
        ({"key_source": "{nope}"}, "field 'nope' names the column 'nope'"),
        ({"key_source": "{a!r}"}, "not a dotted path"),
        ({"key_source": "same for all {{}}"}, "no field"),
    ],
)
def test_options_that_cannot_work(options: dict[str, str], reported: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        plan_rows(from_arrow_schema(pa.schema({"a": pa.string(), "b": pa.float64()})), **options)
    assert reported in str(caught.value)


@pytest.mark.parametrize(
    ("kind", "reported"),
    [
        (DayTimeIntervalType(), "column 'c' has the type interval day to second, which JSON cannot carry; cast it"),
        (VariantType(), "column 'c' has the type variant"),
        (MapType(DateType(), StringType()), "column 'c' is a map whose keys are neither text nor whole numbers"),
        (StructType([StructField("x", VariantType())]), "column 'c.x' has the type variant"),
    ],
)
def test_types_without_json(kind: Any, reported: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        plan_rows(StructType([StructField("c", kind)]))
    assert reported in str(caught.value)
    assert plan_rows(StructType([StructField("c", kind), StructField("payload", StringType())])).payload == "payload"


def test_a_column_that_stands_twice() -> None:
    with pytest.raises(ConfigurationError, match="column 'a' occurs twice; rename one"):
        plan_rows(StructType([StructField("a", StringType()), StructField("a", StringType())]))


def test_a_slice_of_nested_columns_is_its_rows() -> None:
    """A call takes a slice of Spark's batch, and all slices share their children."""
    inner = pa.struct({"x": pa.struct({"y": pa.float64(), "z": pa.list_(pa.date32())}), "void": pa.null()})

    def row(n: int) -> dict[str, Any] | None:
        return None if n % 5 == 0 else {"x": {"y": n / 2, "z": [date(2026, 1, n)] * (n % 3)}}

    maps = [None if n % 4 == 0 else [(str(k), row(n + k)) for k in range(n % 3)] for n in range(12)]
    lists = [None if n % 3 == 0 else [row(n)] * (n % 4) for n in range(12)]
    kinds = {"m": pa.map_(pa.string(), inner), "l": pa.list_(inner)}
    batch = pa.record_batch({"m": pa.array(maps, kinds["m"]), "l": pa.array(lists, kinds["l"])})
    plan = plan_rows(from_arrow_schema(batch.schema))
    whole = plan.rows(batch).payloads
    assert json.loads(whole[11])["m"] == {
        "0": {"x": {"y": 5.5, "z": ["2026-01-11"] * 2}, "void": None},
        "1": {"x": {"y": 6.0, "z": []}, "void": None},
    }
    for start in range(12):
        assert plan.rows(batch.slice(start, 5)).payloads == whole[start : start + 5]


def test_rows_are_sorted_by_name_where_the_queue_sorts_keys() -> None:
    table = pa.table({"b": [{"d": 1, "c": 2}], "a": ["x"]})
    assert made(table, sort_keys=True).payloads == [b'{"a":"x","b":{"c":2,"d":1}}']
    assert made(table).payloads == [b'{"b":{"d":1,"c":2},"a":"x"}']
    assert made(table, payload="b", sort_keys=True).payloads == [b'{"c":2,"d":1}']
