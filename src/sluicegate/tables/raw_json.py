"""Rewrite payloads for Arrow's JSON reader: it reads no text in the place of an object, no variants and no maps.

A payload is cut at the borders of its values, and its values stay as they were published: a number keeps its digits,
and a text of JSON every byte.
"""

from __future__ import annotations

import json as stdlib
import math
import re
from collections.abc import Sequence
from json.decoder import scanstring  # type: ignore[attr-defined]
from typing import TYPE_CHECKING, NoReturn

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["holds_text", "reshaped"]

Span = tuple[str, int, int]
"""A member of an object: its name, and where its value begins and ends."""


def _refuse(word: str) -> NoReturn:
    raise ValueError("a word that JSON has not")


def _in_range(number: str) -> str:
    """Refuse what no double holds, as Arrow's reader does."""
    if not math.isfinite(float(number)):
        raise ValueError("a number out of range")
    return number


_scan = stdlib.JSONDecoder(parse_constant=_refuse, parse_float=_in_range, parse_int=_in_range).scan_once  # type: ignore[attr-defined]
_skip = re.compile(r"[ \t\n\r]*").match


def holds_text(arrow: pa.DataType) -> bool:
    """Return whether a type is a string or a variant or contains one, so that any JSON fits there."""
    from pyarrow import types

    from sluicegate.tables.types import is_variant

    if types.is_string(arrow) or is_variant(arrow):
        return True
    if types.is_map(arrow):
        return holds_text(arrow.item_type)
    return any(holds_text(arrow.field(index).type) for index in range(arrow.num_fields))


def reshaped(payload: bytes, fields: Sequence[pa.Field]) -> bytes:
    """Return the declared fields of a payload, in the form in which Arrow's reader takes them.

    In the place of a string, a value that is no string becomes the text of its JSON. In the place of a variant, every
    value does, null too. Maps become lists of entries; of a name that stands in a map twice, the last value counts.

    Raises:
        ValueError: the payload is no JSON object, has a declared field twice, or has another value in the place of a
            map, or of a list or struct that holds a string, a variant or a map.
        RecursionError: it is nested too deeply.
    """
    text = payload.decode()
    start = _after_space(text, 0)
    members, end = _members(text, start)
    if _after_space(text, end) != len(text):
        raise ValueError("something follows the object")
    return _object(text, members, fields).encode()


def _value(text: str, start: int, end: int, arrow: pa.DataType) -> str:
    """Return the JSON of one value of a type."""
    from pyarrow import types

    from sluicegate.tables.types import holds_map, is_variant

    if is_variant(arrow):
        return _quoted(text[start:end])
    if text.startswith("null", start):
        return "null"
    if types.is_string(arrow):
        return text[start:end] if text[start] == '"' else _quoted(text[start:end])
    if not holds_text(arrow) and not holds_map(arrow):
        return text[start:end]
    if types.is_list(arrow):
        return "[" + ",".join(_value(text, *item, arrow.value_type) for item in _items(text, start)) + "]"
    members, _ = _members(text, start)
    if types.is_map(arrow):
        entries = {name: (first, last) for name, first, last in members}
        pairs = (
            f'{{"key":{_quoted(name)},"value":{_value(text, *span, arrow.item_type)}}}'
            for name, span in entries.items()
        )
        return "[" + ",".join(pairs) + "]"
    return _object(text, members, [arrow.field(index) for index in range(arrow.num_fields)])


def _object(text: str, members: Sequence[Span], fields: Sequence[pa.Field]) -> str:
    declared = {field.name: field for field in fields}
    found: dict[str, str] = {}
    for name, start, end in members:
        if name in found:
            raise ValueError("a declared field that stands in it twice")
        if name in declared:
            found[name] = _value(text, start, end, declared[name].type)
    return "{" + ",".join(f"{_quoted(name)}:{value}" for name, value in found.items()) + "}"


def _members(text: str, at: int) -> tuple[list[Span], int]:
    """Return the members of the object that begins at a place, and where it ends."""
    if text[at : at + 1] != "{":
        raise ValueError("no object")
    members: list[Span] = []
    at = _after_space(text, at + 1)
    if text[at : at + 1] == "}":
        return members, at + 1
    while True:
        if text[at : at + 1] != '"':
            raise ValueError("no name")
        name, at = scanstring(text, at + 1, True)
        at = _after_space(text, at)
        if text[at : at + 1] != ":":
            raise ValueError("no colon")
        start = _after_space(text, at + 1)
        end = _end(text, start)
        members.append((name, start, end))
        at = _after_space(text, end)
        if text[at : at + 1] == "}":
            return members, at + 1
        if text[at : at + 1] != ",":
            raise ValueError("no comma")
        at = _after_space(text, at + 1)


def _items(text: str, at: int) -> list[tuple[int, int]]:
    """Return where the items of the array that begins at a place begin and end; the array has been scanned."""
    if text[at : at + 1] != "[":
        raise ValueError("no array")
    items: list[tuple[int, int]] = []
    at = _after_space(text, at + 1)
    while text[at] != "]":
        end = _end(text, at)
        items.append((at, end))
        at = _after_space(text, end)
        if text[at] == ",":
            at = _after_space(text, at + 1)
    return items


def _end(text: str, at: int) -> int:
    """Return where the value ends that begins at a place."""
    try:
        _, end = _scan(text, at)
    except StopIteration:
        raise ValueError("no value") from None
    return int(end)


def _after_space(text: str, at: int) -> int:
    found = _skip(text, at)
    assert found is not None
    return found.end()


def _quoted(text: str) -> str:
    return stdlib.dumps(text, ensure_ascii=False)
