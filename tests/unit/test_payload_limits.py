"""Limits for payloads: what is refused, what is said of it, and what is let through."""

from __future__ import annotations

import contextlib
import time
from collections import OrderedDict
from datetime import UTC, datetime
from enum import IntEnum
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from sluicegate.core.keys import QueueKeys
from sluicegate.core.payload_limits import PayloadLimits
from sluicegate.core.publishing import Publishing, encode_payload
from sluicegate.errors import ConfigurationError, PayloadTooDeepError, PayloadTooLargeError, RedisMessageQueueError
from tests.support.batches import one_call


class Text(str):
    pass


class Level(IntEnum):
    LOW = 1


class Custom:
    pass


def stored(payload: Any, **options: Any) -> bytes:
    """Return the payload as a queue with these limits would store it."""
    publishing = Publishing(QueueKeys("orders"), None, 3600, 120, limits=PayloadLimits(**options))
    (part,) = one_call(publishing, b"b", [payload]).parts
    return part.rsplit(b"\x1f", 1)[1]


def nested(depth: int, inner: Any = 1) -> Any:
    payload = inner
    for level in range(depth):
        payload = [payload] if level % 2 else {"k": payload}
    return payload


# ---------------------------------------------------------------------- types


@pytest.mark.parametrize(
    ("payload", "path", "what"),
    [
        ({"items": [1, (2, 3)]}, "$.items[1]", "a tuple"),
        ({"a": {"b": {1, 2}}}, "$.a.b", "a set"),
        ([frozenset()], "$[0]", "a frozenset"),
        ({"a": b"x"}, "$.a", "a bytes"),
        ({"a": [0, {"when": datetime.now(UTC)}]}, "$.a[1].when", "a datetime"),
        ([1, Custom()], "$[1]", "a Custom"),
        ({"a": OrderedDict()}, "$.a", "a OrderedDict"),
        ({"a": Text("x")}, "$.a", "a Text"),
        ({"a": Level.LOW}, "$.a", "a Level"),
        ({"a": {1: 2}}, "$.a", "a key of type int"),
        (OrderedDict(a=1), "$", "a OrderedDict"),
    ],
)
def test_strict_types_name_what_would_change_and_where(payload: Any, path: str, what: str) -> None:
    with pytest.raises(TypeError) as caught:
        stored(payload, strict_payload_types=True)
    assert f"payload has {what} at {path}, " in str(caught.value)


@pytest.mark.parametrize("payload", [{"a": [1, 2.5, True, None, "ä", {"b": []}]}, [], {}, "text", b"\xff"])
def test_strict_types_let_json_through_and_text_and_bytes(payload: Any) -> None:
    assert stored(payload, strict_payload_types=True) == encode_payload(payload)


def test_without_strict_types_tuples_become_lists() -> None:
    assert stored({"a": (1, Text("x"))}) == b'{"a":[1,"x"]}'


def test_a_payload_within_itself_is_an_error_and_no_endless_loop() -> None:
    payload: list[Any] = []
    payload.append(payload)
    with pytest.raises(ValueError, match="nested deeper than 200 levels"):
        stored(payload, strict_payload_types=True)
    with pytest.raises(PayloadTooDeepError):
        stored(payload, max_payload_depth=5)


# ---------------------------------------------------------------------- size


@pytest.mark.parametrize(
    ("payload", "size"), [({"a": 1}, 7), ({"a": "ä"}, 10), ("äöü", 6), (b"\xff\xfe", 2), ([], 2), ("", 0)]
)
def test_the_size_is_that_of_the_stored_bytes(payload: Any, size: int) -> None:
    assert len(stored(payload, max_payload_bytes=max(size, 1))) == size
    if size > 1:
        with pytest.raises(PayloadTooLargeError) as caught:
            stored(payload, max_payload_bytes=size - 1)
        assert (caught.value.size, caught.value.limit) == (size, size - 1)
        assert f"takes {size} bytes as it is stored, and max_payload_bytes is {size - 1}" in str(caught.value)


@pytest.mark.parametrize("payload", [{"name": "Zoë", "city": "東京", "mood": "🙂"}, "Zoë 東京 🙂"])
def test_text_beyond_ascii_stays_readable(payload: Any) -> None:
    for options in ({}, {"strict_payload_types": True, "max_payload_bytes": 1000, "max_payload_depth": 3}):
        data = stored(payload, **options)
        assert all(word.encode() in data for word in ("Zoë", "東京", "🙂"))
        assert b"\\u" not in data


# ---------------------------------------------------------------------- depth


@pytest.mark.parametrize("most", [1, 2, 5, 20])
def test_depth_counts_dicts_and_lists(most: int) -> None:
    assert stored(nested(most), max_payload_depth=most) == encode_payload(nested(most))
    with pytest.raises(PayloadTooDeepError) as caught:
        stored(nested(most + 1), max_payload_depth=most)
    assert caught.value.limit == most


def test_depth_names_the_path() -> None:
    with pytest.raises(PayloadTooDeepError, match=r"deeper than max_payload_depth=2 at \$\.a\[1\];"):
        stored({"x": [], "a": [{}, 1][::-1]}, max_payload_depth=2)


def test_depth_counts_tuples() -> None:
    with pytest.raises(PayloadTooDeepError, match=r"at \$\[0\];"):
        stored([()], max_payload_depth=1)


@pytest.mark.parametrize("as_given", [bytes, bytes.decode], ids=["bytes", "str"])
def test_depth_of_json_text(as_given: Any) -> None:
    most = 4
    fits = encode_payload(nested(most, 'a "quoted" [[[[[ \\ {{{{{ \\"'))
    assert stored(as_given(fits), max_payload_depth=most) == fits
    with pytest.raises(PayloadTooDeepError, match="in its JSON text"):
        stored(as_given(b" " + encode_payload(nested(most + 1))), max_payload_depth=most)
    side_by_side = encode_payload([[1], [2], [3], [4], [5], [6]])
    assert stored(as_given(side_by_side), max_payload_depth=2) == side_by_side


@pytest.mark.parametrize("payload", ["text with [[[[ and {{{{", b"\x00[[[[", "'[[[[["])
def test_other_text_has_no_depth(payload: Any) -> None:
    assert stored(payload, max_payload_depth=1) == encode_payload(payload)


def depth_of(text: bytes) -> int:
    """Return the deepest nesting of a text that begins as JSON does, byte by byte."""
    depth = deepest = 0
    inside = escaped = False
    for byte in text:
        char = chr(byte)
        if inside:
            inside, escaped = escaped or char != '"', not escaped and char == "\\"
        elif char == '"':
            inside = True
        else:
            depth += (char in "[{") - (char in "]}")
            deepest = max(depth, deepest)
    return deepest


JSON_LIKE = st.lists(st.sampled_from([b"[", b"]", b"{", b"}", b'"', b"\\", b'\\"', b"a", b"\n", b'"[{"', b"1,"])).map(
    b"".join
)


@given(st.sampled_from([b"[", b"{", b" [["]), JSON_LIKE, st.integers(1, 6))
@example(b"[", b'"\\', 1)
@example(b"[", b'"\\"[[[[', 1)
@example(b"[", b'"unfinished [[[[ \\', 1)
def test_depth_is_that_of_a_scanner_that_reads_byte_by_byte(start: bytes, text: bytes, most: int) -> None:
    data = start + text
    try:
        PayloadLimits(max_payload_depth=most).check_stored(data, data)
        refused = False
    except PayloadTooDeepError:
        refused = True
    assert refused == (depth_of(data) > most)


PREFIXES = ["[[", '["', "[", '["\\']
UNITS = [
    "[",
    "[]",
    "{",
    '"',
    '""',
    "\\",
    '\\"',
    '"\\"',
    '"\\\\"',
    '"\\',
    '["',
    '[\\"',
    '"[',
    '"a',
    '\\\\"',
    '"\\"\\"',
    ']"[',
    "{[",
]


@pytest.mark.parametrize("unit", UNITS)
def test_depth_is_found_in_one_pass_over_any_text(unit: str) -> None:
    # A scan that begins again at each quote takes 15 s and more of processor time for one of these; one pass, 10 ms.
    spent = time.thread_time()
    for prefix in PREFIXES:
        data = (prefix + unit * (64_000 // len(unit))).encode()
        with contextlib.suppress(PayloadTooDeepError):
            PayloadLimits(max_payload_depth=3).check_stored(data, data)
    assert time.thread_time() - spent < 3


def test_a_path_of_long_names_costs_nothing_until_it_is_shown() -> None:
    payload = {"n" * 800_000: [*range(60_000), 1e300, [[()]]]}
    spent = time.thread_time()
    stored(payload)
    for options in ({"strict_payload_types": True}, {"max_payload_depth": 2}):
        with pytest.raises((TypeError, PayloadTooDeepError), match=r"\$\.n{79}…\[60001\]") as caught:
            stored(payload, **options)
        assert len(str(caught.value)) < 400, "a name of megabytes is cut"
    assert time.thread_time() - spent < 2


# ---------------------------------------------------------------------- options


@pytest.mark.parametrize("name", ["max_payload_bytes", "max_payload_depth"])
@pytest.mark.parametrize("value", [0, -1, True, 1.5, "10"])
def test_a_limit_is_an_int_of_one_or_more(name: str, value: Any) -> None:
    with pytest.raises(ConfigurationError, match=f"{name} must be None for no limit, or an int of 1 or more"):
        PayloadLimits(**{name: value})


def test_no_limits_cost_nothing() -> None:
    assert not PayloadLimits()
    assert all(
        [
            PayloadLimits(strict_payload_types=True),
            PayloadLimits(max_payload_bytes=1),
            PayloadLimits(max_payload_depth=1),
        ]
    )


def test_the_errors_are_ours_and_value_errors() -> None:
    for kind in (PayloadTooLargeError, PayloadTooDeepError):
        assert issubclass(kind, RedisMessageQueueError)
        assert issubclass(kind, ValueError)


def test_one_bad_payload_stops_its_batch() -> None:
    publishing = Publishing(QueueKeys("orders"), None, 3600, 120, limits=PayloadLimits(max_payload_bytes=5))
    with pytest.raises(PayloadTooLargeError):
        one_call(publishing, b"b", ["short", "too long"])
