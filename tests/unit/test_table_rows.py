"""The rows of a table are the messages that `to_pylist()` would make: same bytes, same keys, same errors."""

from __future__ import annotations

import datetime as dt
import itertools
from collections.abc import Callable, Iterable
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from sluicegate.core import json
from sluicegate.core.deduplication import compile_key_function, portable_key_source
from sluicegate.core.keys import QueueKeys
from sluicegate.core.payload_limits import NO_PAYLOAD_LIMITS, PayloadLimits
from sluicegate.core.publishing import EncodedRows, Publishing
from sluicegate.core.transitions.publish import Batch
from sluicegate.errors import ConfigurationError, OptionTypeError
from sluicegate.json_default import json_function
from sluicegate.tables import rows
from sluicegate.tables.rows import TableRows, batches_of

INTS = [pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64()]
TEXT = st.text(st.characters(exclude_categories=["Cs"]) | st.sampled_from('"\\\n\t\x00\x1f\x7f{}:%é😀'), max_size=8)
FLOATS = st.floats(allow_nan=False, allow_infinity=False) | st.sampled_from(
    [0.0, -0.0, 1.0, 1e15, 1e16, 1e-4, 9.9e-5, 1e22, 5e-324, 123456.789, -1e16, 1e17]
)


def publishing(key: Any = None, **options: Any) -> Publishing:
    made = compile_key_function(key) if key is not None else None
    return Publishing(QueueKeys("q"), made, 3600, 120, key_source=portable_key_source(key), **options)


def outcome(how: Publishing, payloads: Iterable[Any], most: int = 1000) -> Any:
    """Return the messages and keys of all calls before an error, and the error with its position."""
    sent: list[Any] = []
    numbers = itertools.count()
    try:
        for batch in how.batches(payloads, {"h": "1"}, new_id=lambda: b"%016d" % next(numbers), most=most):
            assert isinstance(batch, Batch)
            sent += [(batch.first, batch.parts, batch.deduplication_keys)]
    except Exception as error:
        return sent, type(error), str(error), getattr(error, "position", None)
    return sent


def by_columns(how: Publishing, table: Any, most: int = 1000) -> Any:
    return outcome(how, TableRows(batches_of(table), how), most)


def check(table: pa.Table, how: Publishing, most: int = 1000) -> None:
    assert by_columns(how, table, most) == outcome(how, table.to_pylist(), most)


def is_encoded_by_columns(table: pa.Table, how: Publishing) -> bool:
    return all(type(each) is EncodedRows for each in TableRows(batches_of(table), how))


@st.composite
def kinds(draw: Any, depth: int = 2) -> pa.DataType:
    simple = [*INTS, pa.float32(), pa.float64(), pa.bool_(), pa.null(), pa.string(), pa.large_string()]
    simple += [pa.string_view(), pa.dictionary(pa.int8(), pa.string()), pa.dictionary(pa.int32(), pa.int64())]
    foreign = [pa.float16(), pa.binary(), pa.decimal128(9, 2), pa.date32(), pa.timestamp("us", "UTC"), pa.time64("us")]
    if depth == 0 or draw(st.integers(0, 3)):
        return draw(st.sampled_from(simple * 3 + foreign))
    inner = kinds(depth - 1)
    make: list[Callable[[], pa.DataType]] = [
        lambda: pa.list_(draw(inner)),
        lambda: pa.large_list(draw(inner)),
        lambda: pa.list_(draw(inner), 2),
        lambda: pa.struct([("a", draw(inner)), ('b"\n', draw(inner))]),
        lambda: pa.struct([]),
        lambda: pa.map_(draw(st.sampled_from([pa.string(), pa.int32()])), draw(inner)),
    ]
    return draw(st.sampled_from(make))()


def values(kind: pa.DataType) -> st.SearchStrategy[Any]:  # noqa: PLR0912  (a list of types)
    types = pa.types
    if types.is_integer(kind):
        bits, signed = kind.bit_width, types.is_signed_integer(kind)
        made: Any = st.integers(-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) if signed else st.integers(0, 2**bits - 1)
    elif types.is_float16(kind):
        made = st.floats(width=16, allow_nan=False, allow_infinity=False)
    elif types.is_float32(kind):
        made = st.floats(width=32, allow_nan=False, allow_infinity=False)
    elif types.is_float64(kind):
        made = FLOATS
    elif types.is_boolean(kind):
        made = st.booleans()
    elif types.is_null(kind):
        return st.none()
    elif types.is_dictionary(kind):
        made = values(kind.value_type)
    elif types.is_binary(kind):
        made = st.binary(max_size=3)
    elif types.is_decimal(kind):
        made = st.integers(-(10**6), 10**6).map(lambda cents: Decimal(cents) / 100)
    elif types.is_date(kind):
        made = st.dates()
    elif types.is_timestamp(kind):
        made = st.datetimes(timezones=st.just(dt.UTC)).filter(lambda time: time.year > 1900)
    elif types.is_time(kind):
        made = st.times()
    elif types.is_map(kind):
        made = st.lists(
            st.tuples(values(kind.key_type).filter(lambda x: x is not None), values(kind.item_type)), max_size=3
        )
    elif types.is_fixed_size_list(kind):
        made = st.lists(values(kind.value_type), min_size=2, max_size=2)
    elif types.is_list(kind) or types.is_large_list(kind):
        made = st.lists(values(kind.value_type), max_size=3)
    elif types.is_struct(kind):
        made = st.fixed_dictionaries({field.name: values(field.type) for field in kind})
    else:
        made = TEXT
    return st.none() | made


@st.composite
def tables(draw: Any) -> pa.Table:
    """Return a table of any columns, in chunks, of which some rows are cut off at either end."""
    count = draw(st.integers(0, 7))
    names = draw(st.lists(TEXT, unique=True, max_size=4))
    columns = []
    for _ in names:
        kind = draw(kinds())
        cells = draw(st.lists(values(kind), min_size=count, max_size=count))
        cut = draw(st.integers(0, count))
        columns.append(pa.chunked_array([array_of(cells[:cut], kind), array_of(cells[cut:], kind)], kind))
    table = pa.Table.from_arrays(columns, names=names) if names else pa.table({"a": pa.array(range(count))})
    return table.slice(draw(st.integers(0, 2)), draw(st.integers(0, 7)))


def array_of(cells: list[Any], kind: pa.DataType) -> pa.Array:
    if pa.types.is_dictionary(kind):
        return pa.array(cells, kind.value_type).dictionary_encode().cast(kind)
    return pa.array(cells, kind)


OPTIONS = st.fixed_dictionaries(
    {
        "sort_keys": st.booleans(),
        "json_default": st.sampled_from([None, json_function("iso"), lambda value: {"of": [str(value)]}]),
        "limits": st.sampled_from(
            [
                NO_PAYLOAD_LIMITS,
                PayloadLimits(strict_payload_types=True),
                PayloadLimits(max_payload_bytes=60),
                PayloadLimits(max_payload_depth=2),
            ]
        ),
    }
)


@settings(max_examples=150, deadline=None)
@given(tables(), OPTIONS, st.sampled_from([1, 3, 1000]))
def test_a_row_is_the_same_message_as_its_dict(table: pa.Table, options: dict[str, Any], most: int) -> None:
    check(table, publishing(**options), most)


@pytest.mark.parametrize("fast", [True, False], ids=["orjson", "standard library"])
@settings(max_examples=60, deadline=None)
@given(table=tables())
def test_both_encoders_write_the_same_rows(fast: bool, table: pa.Table) -> None:
    with pytest.MonkeyPatch.context() as patch:
        if not fast:
            patch.setattr(json, "orjson", None)
            patch.setattr(json, "fast_dumps", None)
        made = by_columns(publishing(), table)
    assert made == outcome(publishing(), table.to_pylist())


KEYS = [
    "k",
    ["k"],
    ["k", "n"],
    ["n", "k"],
    "{k}",
    "x{k}",
    "{k}:{n}",
    "{k}{n}",
    "{k}a{n}-{k}",
    "s.k",
    "{s.k}/{n}",
    "{{{k}}}",
    "q",
]


@settings(max_examples=150, deadline=None)
@given(
    st.lists(st.tuples(st.none() | TEXT, st.none() | st.integers(-5, 2**63 - 1), st.none() | TEXT), max_size=5),
    st.sampled_from(KEYS),
    st.sampled_from([pa.string(), pa.large_string(), pa.dictionary(pa.int8(), pa.string())]),
)
@example([("a%b", 1, "x"), ("%", 2, "y")], ["k", "n"], pa.string())
@example([("a:b", 1, "x"), ("a", 2, ":")], "{k}:{n}", pa.string())
@example([("k" * 70_000, 1, "x")], "k", pa.string())
@example([("", 1, "x")], "k", pa.string())
@example([("", 1, "x")], "x{k}", pa.string())
def test_keys_are_those_of_the_dicts(cells: list[Any], key: Any, kind: pa.DataType) -> None:
    structs = [None if k is None else {"k": k} for _, _, k in cells]
    table = pa.table(
        {
            "k": array_of([k for k, _, _ in cells], kind),
            "n": pa.array([n for _, n, _ in cells], pa.int64()),
            "s": pa.array(structs, pa.struct([("k", pa.string())])),
        }
    )
    check(table, publishing(key))


@pytest.mark.parametrize("kind", [pa.bool_(), pa.float64(), pa.binary(), pa.null(), pa.list_(pa.string())])
def test_a_key_of_another_type_is_refused_with_its_row(kind: pa.DataType) -> None:
    cells = {pa.bool_(): [True], pa.float64(): [1.5], pa.binary(): [b"x"], pa.null(): [None]}.get(kind, [["a"]])
    table = pa.table({"k": pa.array(cells * 2, kind)})
    _, kind_of_error, _, position = by_columns(publishing("k"), table)
    assert issubclass(kind_of_error, (TypeError, ConfigurationError))
    assert position == 0
    check(table, publishing("k"))


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
@pytest.mark.parametrize("nested", [False, True])
def test_a_number_that_json_lacks_is_refused_with_its_row_and_column(value: float, nested: bool) -> None:
    cells = [1.0] * 12_000 + [value]
    column = pa.array([[cell] for cell in cells]) if nested else pa.array(cells)
    made = by_columns(publishing(), pa.table({"n": range(12_001), "price": column}))
    sent, kind, text, position = made
    assert (kind, position, len(sent)) == (ValueError, 12_000, 12)
    assert text.startswith(f"payload has {value} at $.price{'[0]' if nested else ''}; ")


def test_values_that_json_lacks_are_refused_like_those_of_dicts() -> None:
    for column in (pa.array([b"x"]), pa.array([Decimal("1.50")]), pa.array([dt.date(2026, 1, 1)])):
        table = pa.table({"a": column})
        _, kind, text, position = by_columns(publishing(), table)
        assert (kind, position) == (TypeError, 0)
        assert " at $.a; JSON carries" in text
        check(table, publishing())


def test_text_that_is_not_utf8_is_refused_with_its_row_and_column() -> None:
    raw = pa.array([b"a", b"b", b"\xff"], pa.binary())
    broken = pa.Array.from_buffers(pa.string(), 3, raw.buffers())
    encoded = pa.DictionaryArray.from_arrays(pa.array([0, 1, 2], pa.int8()), broken)
    for column in (broken, encoded):
        made = by_columns(publishing(), pa.table({"n": [1, 2, 3], "name": column}), most=1)
        sent, kind, text, position = made
        assert (len(sent), kind, position) == (2, ValueError, 2)
        assert text == "column 'name' holds text that is not UTF-8 (UnicodeDecodeError); cast it, or repair it"


def test_a_key_function_gets_each_row() -> None:
    table = pa.table({"a": [1, 2], "b": ["x", "y"]})
    check(table, publishing(lambda row: f"{row['a']}{row['b']}"))
    assert not is_encoded_by_columns(table, publishing(lambda row: "k"))


def test_common_tables_are_encoded_by_columns() -> None:
    table = pa.table(
        {
            "id": [1, None],
            "name": ['a"\n', "b"],
            "price": [1e-9, -0.0],
            "lines": [[1, None], []],
            "at": pa.array([{"x": "y"}, None], pa.struct([("x", pa.string())])),
            "tags": pa.array([[("a", 1)], None], pa.map_(pa.string(), pa.int8())),
            "kind": pa.array(["a", "b"]).dictionary_encode(),
            "on": pa.array([dt.datetime(2026, 1, 1, tzinfo=dt.UTC)] * 2),
        }
    )
    how = publishing("{name}", json_default=json_function("iso"))
    assert is_encoded_by_columns(table, how)
    check(table, how)


@pytest.mark.parametrize("kind", [pa.list_(pa.int64()), pa.large_list(pa.int64())])
def test_lists_may_begin_anywhere_among_their_elements(kind: pa.DataType) -> None:
    """Files and other programs leave elements before the first list, without an offset of the column."""
    offsets = pa.array([2, 3, 3, 5], pa.int64() if pa.types.is_large_list(kind) else pa.int32())
    make = pa.LargeListArray if pa.types.is_large_list(kind) else pa.ListArray
    lists = make.from_arrays(offsets, pa.array([7, 7, 1, 2, 3, 7]))
    assert lists.offset == 0
    table = pa.table({"a": pa.array(["x", "y", "z"]), "b": lists})
    check(table, publishing("a"), 1000)
    assert is_encoded_by_columns(table, publishing("a"))


def test_equal_column_names_are_refused() -> None:
    table = pa.Table.from_arrays([pa.array([1]), pa.array([2])], names=["a", "a"])
    assert by_columns(publishing(), table)[1:3] == (
        ConfigurationError,
        "the column 'a' occurs twice; rename one, since messages are made by name",
    )


def test_equal_names_within_a_struct_are_refused_with_their_row() -> None:
    twice = pa.StructArray.from_arrays([pa.array([1, 2]), pa.array([3, 4])], ["a", "a"])
    sent, kind, text, position = by_columns(publishing(), pa.table({"s": twice}))
    assert (sent, kind, position) == ([], ValueError, 0)
    assert text.startswith("column 's' holds a value that Python lacks")


def test_strict_types_refuse_a_map_because_its_pairs_are_tuples() -> None:
    how = publishing(limits=PayloadLimits(strict_payload_types=True))
    for kind in (pa.map_(pa.string(), pa.int8()), pa.list_(pa.map_(pa.string(), pa.int8()))):
        cells = [[("k", 1)]] if pa.types.is_map(kind) else [[[("k", 1)]]]
        table = pa.table({"m": pa.array(cells, kind)})
        assert by_columns(how, table)[1] is TypeError
        check(table, how)


def test_calls_are_filled_whatever_the_chunks_are() -> None:
    table = pa.table({"a": list(range(2500))})
    for chunk in (7, 999, 1000, 1001, 2500):
        pieces = pa.Table.from_batches(table.to_batches(max_chunksize=chunk))
        sent = by_columns(publishing("a"), pieces)
        assert [(first, len(parts), len(keys)) for first, parts, keys in sent] == [
            (0, 1000, 1000),
            (1000, 1000, 1000),
            (2000, 500, 500),
        ]


def test_a_call_has_at_most_4_mb(monkeypatch: pytest.MonkeyPatch) -> None:
    table = pa.table({"a": ["x" * 1_500_000] * 7})
    check(table, publishing())
    assert [len(parts) for _, parts, _ in by_columns(publishing(), table)] == [2, 2, 2, 1]


def test_slices_are_bounded_by_rows_and_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rows, "SLICE_ROWS", 10)
    monkeypatch.setattr(rows, "SLICE_BYTES", 1000)
    table = pa.table({"a": list(range(25)) + [1] * 5, "b": ["x" * size for size in [5] * 25 + [400] * 5]})
    slices = [*rows._sliced(iter(table.to_batches()))]
    assert pa.Table.from_batches(slices) == table
    assert max(part.num_rows for part in slices) == 10
    assert max(map(rows._nbytes, slices)) <= 1000
    assert len(slices) == 5  # two of 400 bytes fit
    big = pa.array(["y" * 300] * 2 + ["z"]).dictionary_encode()
    one = pa.table({"a": big.take(pa.array([0] * 20))})
    assert [part.num_rows for part in rows._sliced(iter(one.to_batches()))] == [2, 3, 2, 3] * 2
    check(one, publishing())


def test_a_dictionary_larger_than_its_column_is_not_written_whole() -> None:
    names = pa.array([f"name {number}" for number in range(1000)])
    column = pa.DictionaryArray.from_arrays(pa.array([7, None, 999]), names)
    for kept in (column, column.slice(1), column.take(pa.array([0] * 2000))):
        table = pa.table({"a": kept})
        assert is_encoded_by_columns(table, publishing())
        check(table, publishing())


def test_a_reader_is_read_a_slice_at_a_time() -> None:
    read = 0

    def batches() -> Any:
        nonlocal read
        for start in range(100):
            read += 1
            yield pa.record_batch({"a": list(range(start * 400, start * 400 + 400))})

    reader = pa.RecordBatchReader.from_batches(pa.schema([("a", pa.int64())]), batches())
    made = iter(TableRows(batches_of(reader), publishing("a")))
    assert [len(next(made).keys), len(next(made).keys)] == [800, 800]  # type: ignore[union-attr]
    assert read <= 5
    assert sum(len(each.keys) for each in made) == 38_400  # type: ignore[union-attr]


def test_a_frame_is_published_without_its_index() -> None:
    pd = pytest.importorskip("pandas")
    frame = pd.DataFrame(
        {"a": [1, 2, 3], "b": [1.5, None, float("nan")], "c": ["x", None, "y"], 7: [True, False, True]},
        index=["p", "q", "r"],
    )
    sent = by_columns(publishing("a"), frame)
    payloads = [part.rpartition(b"\x1f")[2] for part in sent[0][1]]
    assert payloads == [
        b'{"a":1,"b":1.5,"c":"x","7":true}',
        b'{"a":2,"b":null,"c":null,"7":false}',
        b'{"a":3,"b":null,"c":"y","7":true}',
    ]
    table = pa.Table.from_pandas(frame, preserve_index=False)
    assert sent == outcome(publishing("a"), table.to_pylist())


def test_a_frame_of_objects_has_one_type_per_column(monkeypatch: pytest.MonkeyPatch) -> None:
    pd = pytest.importorskip("pandas")
    monkeypatch.setattr(rows, "SLICE_ROWS", 2)
    frame = pd.DataFrame({"a": pd.Series([1, 2, None, 2.5], dtype=object)})
    table = pa.Table.from_pandas(frame, preserve_index=False)
    assert by_columns(publishing(), frame) == outcome(publishing(), table.to_pylist())
    mixed = pd.DataFrame({"a": pd.Series([1, "secret"], dtype=object)})
    _, kind, text, _ = by_columns(publishing(), mixed)
    assert kind is ConfigurationError
    assert "secret" not in text


@pytest.mark.parametrize("table", [None, [{"a": 1}], {"a": [1]}, "table"])
def test_anything_else_is_refused(table: Any) -> None:
    with pytest.raises(OptionTypeError, match="publish_many takes an iterable of dicts"):
        batches_of(table)
