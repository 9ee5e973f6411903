"""JSON by one rule: the same bytes and the same errors with and without orjson."""

from __future__ import annotations

import dataclasses
import datetime
import enum
import json as stdlib
import math
import uuid
from collections import OrderedDict, defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from sluicegate.core import json


class Colour(enum.Enum):
    RED = "red"


class Name(enum.StrEnum):
    ANN = "ann"


class Level(enum.IntEnum):
    LOW = 1


@dataclasses.dataclass
class Point:
    x: int


class Text(str):
    def __str__(self) -> str:
        return "another text"


class Number(int):
    pass


class Ratio(float):
    def __repr__(self) -> str:
        return "another number"


@contextmanager
def without_orjson() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(json, "orjson", None)
        yield


def outcome(function: Callable[[Any], Any], value: Any) -> tuple[str, Any]:
    try:
        return "ok", function(value)
    except (TypeError, ValueError) as error:
        return type(error).__name__, str(error)


def in_both(value: Any) -> tuple[str, Any]:
    fast = outcome(json.dumps, value)
    with without_orjson():
        slow = outcome(json.dumps, value)
    assert fast == slow
    return fast


def nested(levels: int, inmost: Any) -> Any:
    for _ in range(levels):
        inmost = [inmost]
    return inmost


@pytest.fixture(autouse=True)
def _has_orjson() -> None:
    assert json.orjson is not None, "without orjson these tests compare nothing"


@pytest.mark.parametrize(
    ("value", "stored"),
    [
        ({"a": [1, "x", None, True, False]}, b'{"a":[1,"x",null,true,false]}'),
        ({"name": "Zoë \u2028 😀"}, '{"name":"Zoë \u2028 😀"}'.encode()),
        ({"c": '\x00\x1f\x7f\n\t"\\/'}, b'{"c":"\\u0000\\u001f\x7f\\n\\t\\"\\\\/"}'),
        ([1e16, 1e15, 1e22, 1e-5], b"[1e+16,1000000000000000.0,1e+22,1e-05]"),
        ([1e-4, -0.0, 0.0, 0.1, 5e-324], b"[0.0001,-0.0,0.0,0.1,5e-324]"),
        ([2**64 - 1, -(2**63)], b"[18446744073709551615,-9223372036854775808]"),
        ({"t": (1, (2,))}, b'{"t":[1,[2]]}'),
        ({Text("k"): Text("v"), "n": Number(7), "r": Ratio(0.5)}, b'{"k":"v","n":7,"r":0.5}'),
        (OrderedDict(b=1, a=2), b'{"b":1,"a":2}'),
        (defaultdict(int, a=1), b'{"a":1}'),
        ({}, b"{}"),
    ],
)  # fmt: skip
def test_bytes(value: Any, stored: bytes) -> None:
    assert in_both(value) == ("ok", stored)


@pytest.mark.parametrize(
    ("value", "error", "text"),
    [
        ({"a": [1, math.nan]}, "ValueError", "nan at $.a[1]"),
        ({"a": math.inf}, "ValueError", "inf at $.a"),
        ([-math.inf], "ValueError", "-inf at $[0]"),
        ({"n": {"id": 2**64}}, "ValueError", "beyond 64 bits at $.n.id"),
        ([-(2**63) - 1], "ValueError", "beyond 64 bits at $[0]"),
        ({"d": datetime.date(2026, 1, 2)}, "TypeError", "date at $.d"),
        ({"d": datetime.datetime(2026, 1, 2, tzinfo=datetime.UTC)}, "TypeError", "datetime at $.d"),
        ({"u": uuid.UUID(int=1)}, "TypeError", "UUID at $.u"),
        ({"e": Colour.RED}, "TypeError", "Colour at $.e"),
        ({"e": [Name.ANN]}, "TypeError", "Name at $.e[0]"),
        ({"e": Level.LOW}, "TypeError", "Level at $.e"),
        ({Name.ANN: 1}, "TypeError", "key of type Name at $"),
        ({"p": Point(1)}, "TypeError", "Point at $.p"),
        ({"s": {1}}, "TypeError", "set at $.s"),
        ({"b": b"x"}, "TypeError", "bytes at $.b"),
        ({"o": {1: 2}}, "TypeError", "key of type int at $.o"),
        ({"o": {None: 2}}, "TypeError", "key of type NoneType at $.o"),
        ({"s": ["\ud800"]}, "ValueError", "lone surrogate at $.s[0]"),
        ({"s": {"a\udfff": 1}}, "ValueError", "lone surrogate at a key of $.s"),
        (Text("\ud800"), "ValueError", "lone surrogate at $"),
        (nested(201, 1), "ValueError", "deeper than 200 levels at $" + "[0]" * 200),
    ],
)  # fmt: skip
def test_refusals_name_the_path(value: Any, error: str, text: str) -> None:
    kind, message = in_both(value)
    assert kind == error
    assert text in message


@pytest.mark.parametrize("inmost", [1, "x", 0.5, 1e300, [], {}], ids=repr)
def test_two_hundred_levels_are_allowed(inmost: Any) -> None:
    levels = 199 if isinstance(inmost, (list, dict)) else 200
    assert in_both(nested(levels, inmost))[0] == "ok"
    assert in_both(nested(levels + 1, inmost))[0] == "ValueError"
    assert in_both({"a": nested(levels - 1, inmost)})[0] == "ok"
    assert in_both({"a": nested(levels, inmost)})[0] == "ValueError"


def test_a_cycle_is_refused() -> None:
    cycle: list[Any] = [0]
    cycle += [cycle, cycle]
    around: dict[str, Any] = {}
    around["again"] = around
    assert "deeper than 200" in in_both(cycle)[1]
    assert "deeper than 200" in in_both(around)[1]


def test_strict_refuses_tuples() -> None:
    with pytest.raises(TypeError, match=r"tuple at \$\.t"):
        json.dumps({"t": (1,)}, strict=True)


TEXT = st.text(st.characters(codec=None), max_size=6)
ATOMS = (
    st.none() | st.booleans() | TEXT | st.floats(width=64) | st.integers(-(2**66), 2**66)
    | st.integers(-(2**63) - 1, -(2**63) + 1) | st.integers(2**64 - 2, 2**64 + 1)
    | st.sampled_from([Name.ANN, Level.LOW, Colour.RED, Text("t"), Number(3), Ratio(2.5), b"b", uuid.UUID(int=3)])
)  # fmt: skip
KEYS = TEXT | st.sampled_from([Name.ANN, Text("k"), 1, None])
VALUES = st.recursive(
    ATOMS,
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.lists(inner, max_size=4).map(tuple)
        | st.dictionaries(TEXT, inner, max_size=4)
        | st.dictionaries(KEYS, inner, max_size=3)
    ),
    max_leaves=12,
)


@settings(max_examples=600)
@given(VALUES)
def test_the_same_bytes_and_errors_in_both(value: Any) -> None:
    kind, stored = in_both(value)
    if kind == "ok":
        assert stdlib.dumps(stdlib.loads(stored), ensure_ascii=False, separators=(",", ":")).encode() == stored
        assert outcome(json.loads, stored) == ("ok", stdlib.loads(stored))


VALUE_ERRORS = ("ValueError", "JSONDecodeError", "UnicodeDecodeError")
PIECES = st.sampled_from(
    ["[", "]", "{", "}", ",", ":", '"', '"a"', "1", "-", "0", ".5", "e5", "E+999", "1e400", "null", "true", "NaN",
     "-Infinity", " ", "\n", "18446744073709551616", "-9223372036854775809", "9" * 400, "9" * 200,
     "0.1234567890123456789012",
     '"\\ud800"', '"\\ud83d\\ude00"', '"\\udc00x"', '"\x01"', "\ufeff"]
)  # fmt: skip


def read(text: str) -> Any:
    try:
        return json.loads(text.encode())
    except ValueError:
        return ValueError


@settings(max_examples=600)
@given(st.lists(PIECES, max_size=7).map("".join) | st.lists(PIECES, max_size=5).map(lambda some: f"[{','.join(some)}]"))
@example("[18446744073709551616,-9223372036854775809,18446744073709551615,-9223372036854775808]")
@example('{"a":1e999}')
@example('["\\ud83d\\ude00", "\\\\ud800"]')
@example("[-0,-0.0,1E5]")
def test_the_same_values_are_read_in_both(text: str) -> None:
    fast = read(text)
    with without_orjson():
        slow = read(text)
    assert repr(slow) == repr(fast)


def test_bytes_that_are_not_json_are_a_value_error() -> None:
    for data in (b"\xff", b"", b"[" * 5000, b"NaN"):
        assert outcome(json.loads, data)[0] in VALUE_ERRORS
        with without_orjson():
            assert outcome(json.loads, data)[0] in VALUE_ERRORS


KEYS = st.text(max_size=4) | st.text(st.sampled_from("aZ\u00e4\u2028\ud7ff\ue000\uffff\U0001f642"), max_size=3)
NESTED = st.recursive(
    st.integers(-(2**63), 2**64 - 1)
    | st.text(max_size=3)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.none(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=4),
    max_leaves=12,
)


@given(st.dictionaries(KEYS, NESTED, max_size=5) | st.lists(NESTED, max_size=3))
@example({"\U0001f642": 1, "\uffff": 2})
@example({"b": {"d": 1e300, "c": (1, {"b": 1, "a": 2})}, "a": 0})
def test_sorted_keys_make_the_bytes_of_the_standard_library_with_and_without_orjson(value: Any) -> None:
    expected = stdlib.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()
    assert json.dumps(value, sort_keys=True) == expected
    with without_orjson():
        assert json.dumps(value, sort_keys=True) == expected


def test_sorted_keys_of_what_both_encoders_write_alike() -> None:
    value = {"b": [{"z": 1, "y": "\u00e4"}], "a": None}
    for function in (json.dumps, json.dumps_alike):
        with_it = function(value, sort_keys=True)
        with without_orjson():
            assert function(value, sort_keys=True) == with_it == '{"a":null,"b":[{"y":"\u00e4","z":1}]}'.encode()


def test_errors_are_the_same_with_sorted_keys() -> None:
    for value in ({"b": 1, "a": float("nan")}, {1: 2}, {"a": {1}}, {"b": "\ud800"}):
        kind, text = outcome(json.dumps, value)
        assert kind != "ok"
        assert outcome(lambda value: json.dumps(value, sort_keys=True), value) == (kind, text)
