"""Declared schemas: JSON payloads become typed columns, a bad payload is named, and no row ever shifts."""

from __future__ import annotations

import json
import pickle
from collections.abc import Sequence
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql import SparkSession
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import (
    ArrayType,
    DataType,
    DateType,
    DecimalType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
    VarcharType,
    VariantType,
)

from sluicegate import Message, RedisMessageQueue
from sluicegate.errors import ConfigurationError
from sluicegate.spark import PayloadError, SluicegateDataSource, options
from sluicegate.spark.schemas import parsed, struct_of
from sluicegate.tables.columns import Columns

SMALL = pa.schema([("a", pa.int64()), ("b", pa.string())])
DIGITS = "123456789012345678901234567890123456"
NOON = datetime(2024, 1, 31, 12, tzinfo=UTC)


def messages(*payloads: bytes) -> list[Message]:
    """Messages `id0`, `id1`, … as a claim gives them."""
    return [
        Message(
            b"1%012x%012x0020id%d\x1f\x1f\x1f%b" % (number + 1, 1_700_000_000_000 + number, number, payload), number, 1
        )
        for number, payload in enumerate(payloads)
    ]


def rows(schema: pa.Schema | StructType, *payloads: bytes) -> list[dict[str, Any]]:
    """Return the declared columns as Python values."""
    table = Columns.of(schema).table(messages(*payloads))
    table.validate(full=True)
    return list(table.select(schema.names).to_pylist())


def one(kind: pa.DataType, value: str) -> Any:
    """Return what the JSON text of one field becomes."""
    return rows(pa.schema([("a", kind)]), b'{"a": %b}' % value.encode())[0]["a"]


def refused(schema: pa.Schema | StructType, *payloads: bytes) -> PayloadError:
    with pytest.raises(PayloadError) as caught:
        Columns.of(schema).table(messages(*payloads))
    return caught.value


def test_declared_fields_come_first_and_those_of_the_message_after_them() -> None:
    table = Columns.of(SMALL).table(messages(b'{"a": 1, "b": "x", "c": [{}]}'))

    assert table.to_pylist() == [
        {
            "a": 1,
            "b": "x",
            "message_id": "id0",
            "message_headers": [],
            "message_deduplication_key": None,
            "message_delivery_count": 3,
            "message_sequence": 1,
            "message_enqueued_at": datetime.fromtimestamp(1_700_000_000, UTC),
            "message_payload": b'{"a": 1, "b": "x", "c": [{}]}',
        }
    ]


def test_without_a_schema_the_columns_are_the_messages_own() -> None:
    columns = Columns.of(None)

    assert columns.names == (
        "id", "payload", "headers", "deduplication_key", "delivery_count", "sequence", "enqueued_at"
    )  # fmt: skip
    assert columns.table(messages(b"\x00")).column("payload").to_pylist() == [b"\x00"]
    assert Columns.of(columns.arrow_schema(), message_columns=False) == columns


@pytest.mark.parametrize("columns", [Columns.of(None), Columns.of(SMALL)])
def test_no_messages_make_an_empty_table_of_the_same_schema(columns: Columns) -> None:
    table = columns.table([])

    assert table.num_rows == 0
    assert table.schema.equals(columns.arrow_schema())


def test_a_schema_can_ask_for_exactly_its_columns() -> None:
    schema = pa.schema([("message_sequence", pa.int64()), ("a", pa.int64()), ("message_id", pa.string())])
    columns = Columns.of(schema, message_columns=False)

    assert columns.table(messages(b'{"a": 7, "message_id": "no"}')).to_pylist() == [
        {"message_sequence": 1, "a": 7, "message_id": "id0"}
    ]


def test_columns_of_messages_alone_do_not_look_at_the_payload() -> None:
    columns = Columns.of(pa.schema([("message_id", pa.string())]), message_columns=False)

    assert columns.table(messages(b"no JSON", b"\xff")).column("message_id").to_pylist() == ["id0", "id1"]


def test_columns_travel_as_plain_values() -> None:
    columns = Columns.of(StructType([StructField("a", LongType(), False, {"comment": "x"})]))

    assert pickle.loads(pickle.dumps(columns)) == columns  # noqa: S301
    assert struct_of(columns)["a"].metadata == {"comment": "x"}


@pytest.mark.parametrize(
    "payload",
    [
        b'{"a":1,"b":"x"}',
        b' \t{"b":"x","a":1}\r\n',
        b'{\n  "a": 1,\n  "b": "x"\n}',
        b'{"a":1,\r\n"b":"x"}',
        b'{"\\u0061":1,"b":"x"}',
    ],
)
def test_whitespace_and_newlines_of_a_payload_change_no_row(payload: bytes) -> None:
    assert rows(SMALL, b'{"a":0}', payload, b'{"a":2}') == [
        {"a": 0, "b": None},
        {"a": 1, "b": "x"},
        {"a": 2, "b": None},
    ]


def test_what_is_missing_or_null_is_null() -> None:
    assert rows(SMALL, b"{}", b'{"a":null}', b'{"b":null,"a":1}') == [
        {"a": None, "b": None},
        {"a": None, "b": None},
        {"a": 1, "b": None},
    ]


HOSTILE = [
    b"",
    b"null",
    b"1",
    b"[1]",
    b'"x"',
    b'{"a":1}{"a":2}',
    b'{"a":1} {"a":2}',
    b'{"a":1}\n{"a":2}',
    b'{"a":1}null{"a":2}',
    b'{"a":1}\nnull\n{"a":2}',
    b'{"a":1},{"a":2}',
    b'{"a":1}}',
    b'{"a":1',
    b',"b":"x"}',
    b'{"a":1} x',
    b'{"b":"x\ny"}',
    b'{"b":"\xff"}',
    b'{"c":"\xff"}',
    b'{"b":"\\ud83d"}',
    b'\xef\xbb\xbf{"a":1}',
    '{"a":1}'.encode("utf-16"),
    b'{"a":1}\x00',
    b'{"a":1,}',
    b'{"a":01}',
    b'{"a":1,"c":1e400}',
    b'{"c":' + b"[" * 100_000 + b"}",
]


@pytest.mark.parametrize("payload", HOSTILE, ids=range(len(HOSTILE)))
@pytest.mark.parametrize("position", [0, 1, 2])
def test_a_payload_that_is_not_one_json_object_is_named_wherever_it_is(payload: bytes, position: int) -> None:
    batch = [b'{"a":7}', b'{"b":"y"}']
    batch.insert(position, payload)

    error = refused(SMALL, *batch)

    assert error.positions == (position,)
    assert error.message_ids == (f"id{position}",)
    assert f"'id{position}'" in str(error)


def test_two_payloads_that_would_make_one_object_together_are_both_refused() -> None:
    assert refused(SMALL, b'{"a":1', b',"b":"x"}{"a":7}').positions == (0, 1)
    assert refused(SMALL, b'{"a":1}{"a":2}', b'{"b":"', b'"}', b'{"a":3}').positions == (0, 1, 2)


def test_all_bad_payloads_of_a_batch_are_found_and_none_is_shown() -> None:
    batch = [b'{"a":%d}' % n for n in range(1000)]
    batch[17], batch[500], batch[999] = b'{"a":"secret"}', b'{"a":1}{"a":2}', b"secret"

    error = refused(SMALL, *batch)

    assert error.positions == (17, 500, 999)
    assert error.message_ids == ("id17", "id500", "id999")
    assert "secret" not in str(error)
    assert "(and 2 more of 1000)" in str(error)
    assert pickle.loads(pickle.dumps(error)).positions == error.positions  # noqa: S301


@pytest.mark.parametrize(
    ("payload", "reason"),
    [
        (b'{"a":"5"}', "field 'a' is a string that does not fit int64"),
        (b'{"a":1.0}', "field 'a' is a number that does not fit int64"),
        (b'{"a":9223372036854775808}', "field 'a' is a number that does not fit int64"),
        (b'{"a":true}', "field 'a' is true or false that does not fit int64"),
        (b'{"a":1,"a":2}', "field 'a' stands in it twice"),
        (b"[1]", "it is an array, and no object"),
        (b"null", "it is null, and no object"),
        (b"{", "it is not JSON"),
        (b'{"a":1,"b":NaN}', "it is not JSON"),
    ],
)
def test_the_reason_names_the_field_and_what_is_wrong(payload: bytes, reason: str) -> None:
    assert refused(SMALL, payload).reason == reason


@pytest.mark.parametrize("word", ["NaN", "Infinity", "-Infinity", "Inf"])
@pytest.mark.parametrize("kind", [pa.float32(), pa.float64()])
def test_words_for_numbers_that_json_has_not_are_no_numbers(kind: pa.DataType, word: str) -> None:
    error = refused(pa.schema([("a", kind)]), b'{"a":1.5}', b'{"a":%b}' % word.encode(), b'{"a":null}')

    assert (error.positions, error.reason) == ((1,), "it is not JSON")


def test_a_time_with_a_zone_where_none_was_declared_says_so() -> None:
    schema = pa.schema([("a", pa.timestamp("us"))])

    assert "(a time without a zone)" in refused(schema, b'{"a":"2024-01-31T12:00:00+02:00"}').reason


def test_a_field_that_must_not_be_null_is_named() -> None:
    schema = pa.schema([pa.field("a", pa.int64(), nullable=False)])

    assert refused(schema, b'{"a":1}', b"{}").reason == "field 'a' is missing, and declared as not null"
    assert refused(schema, b'{"a":null}').reason == "field 'a' is null, and declared as not null"
    assert rows(schema, b'{"a":1}') == [{"a": 1}]


def test_what_must_not_be_null_inside_of_a_null_struct_may_be_missing() -> None:
    inner = pa.struct([pa.field("x", pa.int64(), nullable=False)])
    schema = pa.schema([("s", inner), ("l", pa.list_(pa.field("element", inner)))])

    assert rows(schema, b'{"s":null,"l":[{"x":1},null]}', b'{"s":{"x":2}}') == [
        {"s": None, "l": [{"x": 1}, None]},
        {"s": {"x": 2}, "l": None},
    ]
    assert refused(schema, b'{"s":{}}').positions == (0,)
    assert refused(schema, b'{"l":[{}]}').positions == (0,)
    listed = pa.schema([("l", pa.list_(pa.field("element", pa.int64(), nullable=False)))])
    assert refused(listed, b'{"l":[1]}', b'{"l":[1,null]}').positions == (1,)


@pytest.mark.parametrize(
    ("kind", "text", "value"),
    [
        (pa.float64(), "1", 1.0),
        (pa.float64(), "123456789012345678901234567890", 123456789012345678901234567890.0),
        (pa.int8(), "-128", -128),
        (pa.bool_(), "true", True),
        (pa.decimal128(38, 2), f"{DIGITS}.78", Decimal(f"{DIGITS}.78")),
        (pa.decimal128(5, 2), '"1.25"', Decimal("1.25")),
        (pa.decimal128(5, 2), "7", Decimal("7.00")),
        (pa.date32(), '"2024-01-31"', date(2024, 1, 31)),
        (pa.timestamp("us", "UTC"), '"2024-01-31T12:00:00Z"', NOON),
        (pa.timestamp("us", "UTC"), '"2024-01-31T13:00:00+01:00"', NOON),
        (pa.timestamp("us", "UTC"), '"2024-01-31 12:00:00"', NOON),
        (pa.timestamp("ns", "Europe/Berlin"), '"2024-01-31T12:00:00.000001Z"', NOON.replace(microsecond=1)),
        (pa.timestamp("us", "UTC"), '"2024-01-31T12:00:00.123456789Z"', NOON.replace(microsecond=123456)),
        (pa.timestamp("us", "UTC"), '"9999-12-31T23:59:59Z"', datetime(9999, 12, 31, 23, 59, 59, tzinfo=UTC)),
        (pa.timestamp("us"), '"2024-01-31T12:00:00"', NOON.replace(tzinfo=None)),
        (pa.binary(), '"AP8f"', b"\x00\xff\x1f"),
        (pa.large_string(), '"\\ud83d\\ude00\\u0000"', "😀\0"),
        (pa.struct([("x", pa.date32()), ("y", pa.binary())]), '{"y":"AA==","z":1}', {"x": None, "y": b"\0"}),
        (pa.list_(pa.timestamp("us", "UTC")), '["2024-01-31T12:00:00Z",null]', [NOON, None]),
        (pa.list_(pa.list_(pa.int64())), "[[1],[],null]", [[1], [], None]),
        (pa.map_(pa.string(), pa.int64()), '{"k":1,"ü":null}', [("k", 1), ("ü", None)]),
        (pa.map_(pa.string(), pa.int64()), "{}", []),
        (pa.map_(pa.int32(), pa.string()), '{"-1":"a","2":null}', [(-1, "a"), (2, None)]),
        (pa.list_(pa.map_(pa.int64(), pa.float32())), '[{"7":0.5}]', [[(7, 0.5)]]),
        (pa.float32(), "3.4028234663852886e38", 3.4028234663852886e38),
        (pa.timestamp("us"), '"2024-01-31T12:00:00.123456789"', NOON.replace(tzinfo=None, microsecond=123456)),
        (pa.timestamp("us"), '"9999-12-31"', datetime(9999, 12, 31)),  # noqa: DTZ001  (no zone is what is tested)
        (pa.list_(pa.timestamp("us")), '["2024-01-31 12:00",null]', [NOON.replace(tzinfo=None), None]),
        (pa.map_(pa.string(), pa.int64()), "null", None),
        (pa.list_(pa.map_(pa.string(), pa.date32())), '[{"k":"2024-01-31"},null]', [[("k", date(2024, 1, 31))], None]),
        (pa.map_(pa.string(), pa.map_(pa.string(), pa.string())), '{"k":{"x":"y"}}', [("k", [("x", "y")])]),
        (pa.struct([("m", pa.map_(pa.string(), pa.decimal128(5, 1)))]), '{"m":{"k":1}}', {"m": [("k", Decimal(1))]}),
    ],
)  # fmt: skip
def test_values_of_every_type(kind: pa.DataType, text: str, value: object) -> None:
    assert one(kind, text) == value
    assert one(kind, "null") is None


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        (pa.int8(), "128"),
        (pa.int64(), "1e3"),
        (pa.float64(), '"1"'),
        (pa.decimal128(5, 2), "1.256"),
        (pa.decimal128(5, 2), "99999.99"),
        (pa.date32(), '"2024-02-30"'),
        (pa.date32(), "19000"),
        (pa.timestamp("us", "UTC"), "1700000000"),
        (pa.timestamp("us", "UTC"), '"yesterday"'),
        (pa.binary(), '"no base64"'),
        (pa.list_(pa.int64()), "1"),
        (pa.struct([("x", pa.int64())]), "[1]"),
        (pa.map_(pa.string(), pa.int64()), "[1]"),
        (pa.map_(pa.string(), pa.int64()), '{"k":"x"}'),
        (pa.map_(pa.string(), pa.field("value", pa.int64(), nullable=False)), '{"k":null}'),
        (pa.map_(pa.int8(), pa.int64()), '{"128":1}'),
        (pa.map_(pa.int8(), pa.int64()), '{"one":1}'),
        (pa.map_(pa.int8(), pa.int64()), '{"01":1}'),
        (pa.float32(), "1e300"),
        (pa.float32(), "-3.5e38"),
        (pa.list_(pa.float32()), "[1,1e300]"),
        (pa.struct([("x", pa.float32())]), '{"x":1e300}'),
        (pa.map_(pa.string(), pa.float32()), '{"k":1e300}'),
        (pa.timestamp("us"), '"2024-01-31T12:00:00+02:00"'),
        (pa.timestamp("us"), '"2024-01-31T12:00:00Z"'),
        (pa.struct([("x", pa.timestamp("us"))]), '{"x":"2024-01-31T12:00:00-0100"}'),
    ],
)
def test_what_does_not_fit_its_type_is_refused_and_not_made_null(kind: pa.DataType, text: str) -> None:
    error = refused(pa.schema([("a", kind)]), b'{"a": %b}' % text.encode())

    assert "field 'a'" in error.reason


def test_a_column_without_a_map_keeps_its_digits_beside_one_with_a_map() -> None:
    schema = pa.schema([("m", pa.map_(pa.string(), pa.int64())), ("d", pa.decimal128(38, 0))])

    assert rows(schema, b'{"d":12345678901234567890123456789012345678,"m":{"k":1}}') == [
        {"m": [("k", 1)], "d": Decimal("12345678901234567890123456789012345678")}
    ]


def test_payloads_larger_than_a_block_of_the_reader() -> None:
    big = "x" * 3_000_000

    batch = [json.dumps({"a": n, "b": big}, indent=1).encode() for n in range(2)]

    assert [(row["a"], len(row["b"])) for row in rows(SMALL, b'{"a":9,"b":""}', *batch)] == [
        (9, 0),
        (0, 3_000_000),
        (1, 3_000_000),
    ]


PIECES = st.sampled_from(
    [b"{", b"}", b"[", b"]", b",", b":", b'"', b"\n", b"null", b"1", b'"a"', b'"b"', b'{"a":1}', b'"a":2', b"\xff"]
)  # fmt: skip
PAYLOADS = st.one_of(
    st.builds(lambda a: json.dumps({"a": a, "b": str(a)}).encode(), st.integers(-9, 9)),
    st.lists(PIECES, max_size=7).map(b"".join),
    st.lists(PIECES, max_size=7).map(lambda parts: b"{" + b"".join(parts) + b"}"),
)


@settings(max_examples=150, deadline=None)
@given(st.lists(PAYLOADS, min_size=1, max_size=5))
def test_every_row_is_its_own_payloads_or_its_message_is_named(batch: list[bytes]) -> None:
    expected = [_small(payload) for payload in batch]
    bad = tuple(position for position, row in enumerate(expected) if row is None)

    if bad:
        assert refused(SMALL, *batch).positions == bad
    else:
        found = rows(SMALL, *batch)
        for row, wanted in zip(found, expected, strict=True):
            if wanted is not None and not isinstance(wanted["b"], (str, type(None))):  # its raw JSON
                row["b"] = json.loads(row["b"], object_pairs_hook=Pairs)
        assert found == expected


def _small(payload: bytes) -> dict[str, Any] | None:
    """Return the row of a payload by the standard library, None where it does not fit `SMALL`."""
    try:
        pairs = json.loads(payload.decode(), object_pairs_hook=Pairs)
    except ValueError:
        return None
    names = [name for name, _ in pairs] if isinstance(pairs, Pairs) else ["a", "a"]
    if max(names.count("a"), names.count("b")) > 1:
        return None
    row = {"a": dict(pairs).get("a"), "b": dict(pairs).get("b")}
    return row if type(row["a"]) in (int, type(None)) else None


class Pairs(list[tuple[str, Any]]):
    """A JSON object as its pairs, so that an array is not taken for one."""


@pytest.mark.parametrize(
    ("schema", "words"),
    [
        (pa.schema([]), ["no columns"]),
        (pa.schema([("a", pa.int64()), ("a", pa.string())]), ["'a'", "twice"]),
        (pa.schema([("a", pa.struct([]))]), ["'a'", "without fields"]),
        (pa.schema([("a", pa.uint64())]), ["'a'", "uint64"]),
        (pa.schema([("a", pa.struct([("x", pa.uint8())]))]), ["'a.x'", "uint8"]),
        (pa.schema([("a", pa.duration("s"))]), ["'a'", "duration"]),
        (pa.schema([("a", pa.map_(pa.date32(), pa.string()))]), ["'a'", "keys"]),
        (pa.schema([("a", pa.map_(pa.string(), pa.decimal128(20, 2)))]), ["'a'", "20 digits"]),
        (pa.schema([("message_id", pa.int64())]), ["'message_id'", "declared as string"]),
        (pa.schema([("message_headers", pa.string())]), ["'message_headers'", "map<string,string>"]),
        (pa.schema([pa.field("message_deduplication_key", pa.string(), nullable=False)]), ["may be null"]),
        (StructType([StructField("v", VariantType())]), ["'v'", "variant", "declare string"]),
        (StructType([StructField("v", VarcharType(3))]), ["'v'", "varchar(3)", "string"]),
        (StructType([StructField("m", ArrayType(MapType(DateType(), StringType())))]), ["'m[]'", "keys"]),
        ({"a": "int"}, ["StructType", "builtins.dict"]),
    ],
)
def test_a_schema_that_cannot_work_is_refused_when_declared(schema: Any, words: Sequence[str]) -> None:
    with pytest.raises(ConfigurationError) as caught:
        Columns.of(schema)

    assert all(word in str(caught.value) for word in words), str(caught.value)


def test_the_arrow_schema_is_what_spark_demands_of_a_data_source() -> None:
    inner = StructType([StructField("x", TimestampType(), False), StructField("y", ArrayType(LongType(), False))])
    schema = StructType(
        [
            StructField("s", inner, False),
            StructField("m", MapType(StringType(), DecimalType(10, 3), False)),
            StructField("message_id", StringType(), True),
        ]
    )
    for columns in (Columns.of(None), Columns.of(schema), Columns.of(schema, message_columns=False)):
        demanded = to_arrow_schema(struct_of(columns), timezone="UTC")
        assert columns.arrow_schema().equals(demanded)
        assert columns.table([]).schema.equals(demanded)


DDL = (
    "a BIGINT NOT NULL COMMENT 'x', `b c` array<struct<d: date, e: map<string, double>>>, f decimal(12,2), g boolean, "
    "h tinyint, i smallint, j int, k float, l double, m binary, n timestamp, o timestamp_ntz, "
    "p map<int, string>, message_sequence bigint"
)


@pytest.mark.spark
def test_ddl_is_parsed_by_the_running_session(spark: SparkSession) -> None:
    columns = Columns.of(parsed(DDL), message_columns=False)

    assert struct_of(columns) == DataType.fromDDL(DDL)
    assert columns.arrow_schema().equals(to_arrow_schema(struct_of(columns), timezone="UTC"))
    with pytest.raises(ConfigurationError, match="not DDL"):
        parsed("a bigint,,")
    with pytest.raises(ConfigurationError, match="must name its columns"):
        parsed("bigint")


@pytest.mark.spark
def test_spark_takes_the_tables_of_all_types(spark: SparkSession) -> None:
    columns = Columns.of(parsed(DDL))
    payload = (
        b'{"a":1,"b c":[{"d":"2024-01-31","e":{"k":1.5}}],"f":1.25,"g":true,"h":1,"i":2,"j":3,"k":1.5,"l":2.5,'
        b'"m":"AP8f","n":"2024-01-31T12:00:00Z","o":"2024-01-31T12:00:00","p":{"1":"x"}}'
    )
    table = columns.table(messages(payload, b'{"a":2}'))

    def give(batches: Any) -> Any:
        next(iter(batches))
        yield from table.to_batches()

    back = spark.range(0, 1, 1, 1).mapInArrow(give, struct_of(columns)).toArrow()

    assert back.to_pylist() == table.to_pylist()


@pytest.mark.spark
def test_what_a_write_makes_of_a_map_or_a_variant_can_be_read_back(
    spark: SparkSession, queue: RedisMessageQueue
) -> None:
    spark.dataSource.register(SluicegateDataSource)
    rows = spark.sql("SELECT map(1, 'a', -2, null) AS m, to_json(named_struct('a', 5)) AS v")
    rows.write.format("sluicegate").mode("append").options(**options(queue)).save()
    queue.publish({"m": None, "v": {"a": 7}})
    source = spark.read.format("sluicegate").options(**options(queue))

    read = source.schema("m map<int, string>, message_payload binary").load()
    read = read.selectExpr("m", "parse_json(CAST(message_payload AS STRING)) AS v")
    found = read.selectExpr("m", "variant_get(v, '$.v.a', 'int') AS a").collect()

    assert [tuple(row) for row in found] == [({1: "a", -2: None}, None), (None, 7)]


def test_ddl_without_a_session_says_what_to_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    def absent(ddl: str) -> DataType:
        from pyspark.errors import PySparkRuntimeError

        raise PySparkRuntimeError(errorClass="SESSION_OR_CONTEXT_NOT_EXISTS", messageParameters={})

    monkeypatch.setattr(DataType, "fromDDL", absent)

    with pytest.raises(ConfigurationError, match=r"StructType or a pyarrow\.Schema"):
        parsed("a bigint")
