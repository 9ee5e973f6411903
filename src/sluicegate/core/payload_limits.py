"""Payload limits cover types, depth and size, and are checked before anything is sent."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from sluicegate.checks import unfit
from sluicegate.core.json import MAX_DEPTH
from sluicegate.core.paths import ROOT, Path, words
from sluicegate.errors import PayloadTooDeepError, PayloadTooLargeError

__all__ = ["NO_PAYLOAD_LIMITS", "PayloadLimits"]

_ATOMS = frozenset({str, int, float, bool, type(None)})
# Possessive, and with an end that may be missing: it matches at every quote and never looks at a byte twice.
_STRING = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+\\?+"?+', re.DOTALL)
_BRACKET = re.compile(rb"[\[\]{}]")
_OPENING = (b"{", b"[")


@dataclass(frozen=True, slots=True)
class PayloadLimits:
    """Payload limits restrict what may be published; the options of `RedisMessageQueue` have the same names.

    Attributes:
        strict_payload_types: refuse what JSON would change: a dict or list payload may hold dict, list, str, int,
            float, bool and None only, and nothing derived from them.
        max_payload_bytes: largest payload as it is stored, None for any.
        max_payload_depth: deepest nesting of dicts and lists, None for any; `{"a": 1}` is 1 deep. JSON in str and
            bytes payloads counts as well.

    Raises:
        ConfigurationError: a limit that is not an int of 1 or more.
    """

    strict_payload_types: bool = False
    max_payload_bytes: int | None = None
    max_payload_depth: int | None = None

    def __post_init__(self) -> None:
        for name in ("max_payload_bytes", "max_payload_depth"):
            value = getattr(self, name)
            if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < 1):
                raise unfit(
                    f"{name} must be None for no limit, or an int of 1 or more, not {value!r}",
                    isinstance(value, int) and not isinstance(value, bool),
                )

    def __bool__(self) -> bool:
        return self.strict_payload_types or self.max_payload_bytes is not None or self.max_payload_depth is not None

    def check_payload(self, payload: Any) -> None:
        """Check a payload before it is encoded.

        Raises:
            TypeError: a value in it would not be decoded as it was encoded; names the path.
            PayloadTooDeepError: nesting beyond the limit; names the path.
        """
        if not isinstance(payload, (dict, list)):
            return
        if self.strict_payload_types and not _is_plain(payload, MAX_DEPTH):
            _refuse_types(payload)
        if self.max_payload_depth is not None:
            _check_nesting(payload, self.max_payload_depth)

    def check_stored(self, payload: Any, data: bytes) -> None:
        """Check the bytes that would be stored for a payload.

        Raises:
            PayloadTooLargeError: more of them than the limit.
            PayloadTooDeepError: a str or bytes payload with JSON that is nested beyond the limit.
        """
        if self.max_payload_bytes is not None and len(data) > self.max_payload_bytes:
            raise PayloadTooLargeError(
                f"payload takes {len(data)} bytes as it is stored, and max_payload_bytes is {self.max_payload_bytes}; "
                "store the bulk elsewhere and publish where it is, or raise the limit",
                size=len(data),
                limit=self.max_payload_bytes,
            )
        if self.max_payload_depth is not None and not isinstance(payload, (dict, list)):
            _check_brackets(data, self.max_payload_depth)


NO_PAYLOAD_LIMITS = PayloadLimits()


def _is_plain(value: Any, depth: int) -> bool:
    """Return whether every value has exactly a JSON type; beyond the depth the encoder refuses any value."""
    kind = type(value)
    if kind in _ATOMS or depth < 0:
        return True
    if kind is dict:
        return all(type(key) is str for key in value) and all(_is_plain(item, depth - 1) for item in value.values())
    return kind is list and all(_is_plain(item, depth - 1) for item in value)


def _refuse_types(payload: Any) -> None:
    for path, what in _foreign_types(payload, ROOT, MAX_DEPTH):
        raise TypeError(
            f"payload has {what} at {words(path)}, which JSON would not return unchanged; "
            "with strict_payload_types only dict, list, str, int, float, bool and None are published"
        )


def _foreign_types(value: Any, path: Path, depth: int) -> Iterator[tuple[Path, str]]:
    """Yield path and description of each value that has no JSON type, in order."""
    kind = type(value)
    if kind in _ATOMS or depth < 0:
        return
    if kind is not dict and kind is not list:
        yield path, f"a {kind.__name__}"
        return
    if kind is dict:
        for key in value:
            if type(key) is not str:
                yield path, f"a key of type {type(key).__name__}"
    for step, item in _children(value):
        yield from _foreign_types(item, (path, step), depth - 1)


def _children(value: Any) -> Iterator[tuple[str | int, Any]]:
    """Iterate over the values in a dict, list or tuple, each with its step of the path."""
    if isinstance(value, dict):
        return ((str(key), item) for key, item in value.items())
    return enumerate(value)


def _check_nesting(payload: Any, most: int) -> None:
    """Check one level after the other, and build a path only if it is needed for an error."""
    level = [payload]
    for _ in range(most):
        level = [
            item
            for value in level
            for item in (value.values() if isinstance(value, dict) else value)
            if isinstance(item, (dict, list, tuple))
        ]
        if not level:
            return
    path = next(_deeper_paths(payload, ROOT, most))
    raise _too_deep(f"at {words(path)}", most)


def _deeper_paths(value: Any, path: Path, depth: int) -> Iterator[Path]:
    """Yield the paths of dicts and lists `depth` levels down."""
    if not isinstance(value, (dict, list, tuple)):
        return
    if depth == 0:
        yield path
        return
    for step, item in _children(value):
        yield from _deeper_paths(item, (path, step), depth - 1)


def _check_brackets(data: bytes, most: int) -> None:
    """Count the brackets of JSON text outside its strings, in one pass.

    Text that does not begin as JSON has no depth. A string that does not end extends to the end of the text, as for a
    decoder.
    """
    if not data.lstrip().startswith(_OPENING) or data.count(b"{") + data.count(b"[") <= most:
        return
    depth = 0
    for found in _BRACKET.finditer(_STRING.sub(b"", data)):
        if found.group() not in _OPENING:
            depth -= 1
        elif depth == most:
            raise _too_deep("in its JSON text", most)
        else:
            depth += 1


def _too_deep(where: str, most: int) -> PayloadTooDeepError:
    return PayloadTooDeepError(
        f"payload is nested deeper than max_payload_depth={most} {where}; flatten it, or raise the limit", limit=most
    )
