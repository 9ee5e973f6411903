"""JSON follows one rule: the same bytes and the same errors with and without orjson.

Stored JSON is compact UTF-8. Numbers and strings look as the standard library writes them; orjson serves only
what it would write identically, and everything else takes the slower road. Nothing is encoded silently: a date, a UUID,
an enum or a dataclass is a `TypeError` unless a function of the caller replaces it, NaN, an infinity or an integer
beyond 64 bits a `ValueError`, each naming the path.
"""

from __future__ import annotations

import enum
import json as _stdlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, NoReturn, Protocol, TypeAlias

from sluicegate.core.paths import ROOT, Path, words

try:
    import orjson
except ImportError:  # the `fast` extra is absent
    orjson = None  # type: ignore[assignment,unused-ignore]

__all__ = ["ALIKE", "MAX_DEPTH", "Json", "TypedDictLike", "dumps", "dumps_alike", "fast_dumps", "is_alike", "loads"]


class TypedDictLike(Protocol):
    """Any `TypedDict`, which checkers of types take for a mapping to `object`."""

    __required_keys__: ClassVar[frozenset[str]]
    __optional_keys__: ClassVar[frozenset[str]]


Json: TypeAlias = Mapping[str, "Json"] | Sequence["Json"] | TypedDictLike | str | int | float | bool | None
"""A JSON value for type checkers; at run time `dumps` checks more exactly."""

MAX_DEPTH = 200
_INT_MIN, _INT_MAX = -(2**63), 2**64 - 1
ALIKE = (1e-4, 1e16)
"""Both encoders write floats from the first to below the second of these alike; outside, their notations differ."""
_SMALLEST, _LARGEST = ALIKE
_PLAIN = frozenset({str, int, bool, type(None)})
_STR = frozenset({str})
_JSON_TYPES = (dict, list, tuple, str, int, float, bool, type(None))


fast_dumps: Callable[[Any], bytes] | None = None if orjson is None else orjson.dumps
"""Encodes a value that `is_alike`, or raises a TypeError where `dumps` names what is wrong; None without orjson."""

Default: TypeAlias = Callable[[Any], Any]
"""Returns what is written in place of a value that JSON cannot carry."""


def dumps(value: Any, *, strict: bool = False, sort_keys: bool = False, default: Default | None = None) -> bytes:
    """Encode a JSON value as compact UTF-8.

    Args:
        value: dict, list, tuple, str, int, float, bool or None, nested at most 200 deep.
        strict: refuse tuples instead of writing them as lists.
        sort_keys: write dicts in the order of their keys (by code point) instead of their own.
        default: replaces each value of any other type, but no keys. What it returns may hold further ones.

    Raises:
        TypeError: something that JSON cannot carry, or a key that is not a str; the message names the path.
        ValueError: NaN, an infinity, an integer beyond 64 bits, a lone surrogate, or nesting beyond 200 levels.
    """
    if not strict and is_alike(value, MAX_DEPTH):
        try:
            if orjson is not None:
                return orjson.dumps(value, option=orjson.OPT_SORT_KEYS if sort_keys else None)
            data = _encoders[sort_keys].encode(value).encode()
            if _LONG_NUMBER not in data.translate(_SHAPE):
                return data
        except (TypeError, ValueError):
            pass  # the walk below finds the path and says what is wrong
    plain = _checked(value, ROOT, strict, MAX_DEPTH, default)
    try:
        return _encoders[sort_keys].encode(plain).encode()
    except UnicodeEncodeError:
        _raise_surrogate(plain, ROOT)


def dumps_alike(value: Any, *, sort_keys: bool = False) -> bytes:
    """Encode a value that both encoders are known to write alike: the bytes of `dumps`, but values are not checked.

    Args:
        value: as for `dumps`, of which the caller knows that it holds dicts with keys of str, lists, str without
            surrogates, integers of 64 bits, bool, None and floats that are 0 or within `ALIKE`, nothing derived from
            them, and is nested at most 200 deep.
        sort_keys: as for `dumps`.
    """
    if orjson is not None:
        return orjson.dumps(value, option=orjson.OPT_SORT_KEYS if sort_keys else None)
    return _encoders[sort_keys].encode(value).encode()


def loads(data: bytes | str) -> Any:
    """Decode JSON; an integer beyond 64 bits becomes a float.

    Raises:
        ValueError: text that is not JSON; NaN, numbers beyond a double and lone surrogates included.
    """
    if orjson is not None:
        return orjson.loads(data)
    text, raw = (data, data.encode()) if isinstance(data, str) else (data.decode(), data)
    try:
        if not _reads_unevenly(raw):
            return _decoder.decode(text)
        value = _careful_decoder.decode(text)
        _encoder.encode(value).encode()  # a lone surrogate is a UnicodeEncodeError, which is a ValueError
    except RecursionError:
        raise ValueError("text is nested too deeply to be read as JSON") from None
    return value


def _reads_unevenly(raw: bytes) -> bool:
    """Return whether a text may contain numbers or escapes that the standard library reads differently from orjson.

    Substrings of a translated copy, because a regular expression takes longer than the decoding.
    """
    shape = raw.translate(_SHAPE)
    return _LONG_NUMBER in shape or b"e000" in shape or b"e+000" in shape or b"\\ud" in shape


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


def _read_int(digits: str) -> int | float:
    value = int(digits) if len(digits) < 400 else 10**400
    return value if _INT_MIN <= value <= _INT_MAX else _read_float(digits)


def _read_float(digits: str) -> float:
    value = float(digits)
    if value - value != 0.0:
        raise ValueError("a number is beyond what a double can hold")
    return value


_SHAPE = bytes.maketrans(b"123456789ED", b"000000000ed")
_LONG_NUMBER = b"0" * 19  # in the shape of a text: perhaps an integer beyond 64 bits
_encoder, _sorting_encoder = (
    _stdlib.JSONEncoder(
        ensure_ascii=False, allow_nan=False, check_circular=False, separators=(",", ":"), sort_keys=sort_keys
    )
    for sort_keys in (False, True)
)
_encoders = {False: _encoder, True: _sorting_encoder}
_decoder = _stdlib.JSONDecoder(parse_constant=_refuse_constant)
_careful_decoder = _stdlib.JSONDecoder(parse_constant=_refuse_constant, parse_int=_read_int, parse_float=_read_float)


def is_alike(value: Any, depth: int = MAX_DEPTH) -> bool:
    """Return whether orjson would write this value exactly as the standard library does, if it writes it.

    Integers beyond 64 bits and lone surrogates are not looked for, nor, where orjson is installed, keys that are not
    str: orjson raises a TypeError for them.
    """
    kind = type(value)
    if kind is dict and depth > 0:
        if orjson is None and not _STR.issuperset(map(type, value)):
            return False
        value = value.values()
    elif (kind is not list and kind is not tuple) or depth == 0:
        return kind in _PLAIN or (kind is float and (value == 0.0 or _SMALLEST <= abs(value) < _LARGEST))
    for item in value:
        kind = type(item)
        if kind is str or kind is int or item is None or kind is bool:  # this loop is a good part of a publish
            continue
        if kind is float:
            if item == 0.0 or _SMALLEST <= item < _LARGEST or -_LARGEST < item <= -_SMALLEST:
                continue
            return False
        if kind is list and depth > 1 and _PLAIN.issuperset(map(type, item)):
            continue
        if not is_alike(item, depth - 1):
            return False
    return True


def _checked(value: Any, path: Path, strict: bool, depth: int, default: Default | None) -> Any:
    """Return the value as plain dicts, lists and atoms, or raise an error that names the path."""
    if isinstance(value, enum.Enum):
        return _replaced(value, path, strict, depth, default)
    if value is None or isinstance(value, (bool, str)):
        return value if type(value) in _PLAIN else str.__str__(value)
    if isinstance(value, int):
        return _checked_int(int(value), path)
    if isinstance(value, float):
        return _checked_float(float(value), path)
    if depth == 0 and isinstance(value, (dict, list, tuple)):
        raise ValueError(f"payload is nested deeper than {MAX_DEPTH} levels at {words(path)}")
    if isinstance(value, dict):
        return {
            _checked_key(key, path): _checked(item, (path, key), strict, depth - 1, default)
            for key, item in value.items()
        }
    if isinstance(value, list) or (isinstance(value, tuple) and not strict):
        return [_checked(item, (path, index), strict, depth - 1, default) for index, item in enumerate(value)]
    return _replaced(value, path, strict, depth, default)


def _replaced(value: Any, path: Path, strict: bool, depth: int, default: Default | None) -> Any:
    """Return what `default` writes in place of a value, checked; what it returns has a JSON type."""
    if default is None:
        raise TypeError(_unsupported(value, path))
    kind = type(value).__name__
    try:
        found = default(value)
    except Exception as error:
        refused = ValueError if isinstance(error, ValueError) else TypeError
        # The text of the caller's error may hold the value; it stays visible as the cause.
        raise refused(
            f"payload has a {kind} at {words(path)}, for which json_default raised {type(error).__name__}"
        ) from error
    if found is value:
        raise TypeError(
            f"payload has a {kind} at {words(path)}, which json_default does not write; give it a function that does"
        )
    if isinstance(found, enum.Enum) or not isinstance(found, _JSON_TYPES):
        raise TypeError(
            f"payload has a {kind} at {words(path)}, for which json_default returned a {type(found).__name__}; "
            "let it return a dict, list, str, int, float, bool or None"
        )
    return _checked(found, path, strict, depth, default)


def _checked_key(key: Any, path: Path) -> str:
    if not isinstance(key, str) or isinstance(key, enum.Enum):
        raise TypeError(f"payload has a key of type {type(key).__name__} at {words(path)}; JSON keys are str")
    return str.__str__(key)


def _checked_int(value: int, path: Path) -> int:
    if not _INT_MIN <= value <= _INT_MAX:
        raise ValueError(f"payload has an integer beyond 64 bits at {words(path)}; send it as a str")
    return value


def _checked_float(value: float, path: Path) -> float:
    if value - value != 0.0:
        raise ValueError(f"payload has {value} at {words(path)}; JSON has no NaN or infinity, send None or a str")
    return value


def _unsupported(value: Any, path: Path) -> str:
    kind = type(value).__name__
    return (
        f"payload has a {kind} at {words(path)}; JSON carries dict, list, str, int, float, bool and None; "
        "json_default= says how to write others"
    )


def _raise_surrogate(value: Any, path: Path) -> NoReturn:
    """Find the str that UTF-8 cannot carry, and raise an error that names its path."""
    stack = [(value, path)]
    while stack:
        item, where = stack.pop()
        if isinstance(item, str):
            _refuse_surrogate(item, where)
        elif isinstance(item, dict):
            for key, child in item.items():
                _refuse_surrogate(key, where, "a key of ")
                stack.append((child, (where, key)))
        elif isinstance(item, list):
            stack.extend((child, (where, index)) for index, child in enumerate(item))
    raise ValueError(f"payload holds text that UTF-8 cannot carry at {words(path)}")


def _refuse_surrogate(text: str, where: Path, what: str = "") -> None:
    try:
        text.encode()
    except UnicodeEncodeError:
        raise ValueError(f"payload has a lone surrogate at {what}{words(where)}; UTF-8 cannot carry it") from None
