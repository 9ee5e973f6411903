"""Deduplication keys are texts made from payloads; two messages with the same key are the same message.

A key function is a callable, one field name, a list of fields, or a template such as `"{tenant}:{order_id}"`. Fields
are dotted paths through dicts only: no attributes, no indexes, no format specs. A key made of several fields is made
injectively: what separates them is percent-encoded within them, so different values never make the same key. The int 1
and the str "1" are the same value.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, overload

from sluicegate.checks import unfit
from sluicegate.errors import ConfigurationError

__all__ = [
    "DeduplicationPolicy",
    "KeyFunction",
    "KeyLayout",
    "KeySource",
    "PendingKey",
    "compile_key_function",
    "key_fields",
    "key_layout",
    "portable_key_source",
]

KeySource = Callable[[Any], str] | Callable[[Any], Awaitable[str]] | str | Sequence[str]
DeduplicationPolicy = Literal["window", "until_acked"]
"""How long a key refuses further messages: for a period after the publish, or until its message has ended."""

_RETURNED = "get_deduplication_key returned"
_TEXT = frozenset({str, int})
_PIECE = re.compile(r"\{\{|\}\}|\{([^{}]*)\}|[{}]")
_ESCAPES = frozenset("%0123456789ABCDEF")  # what encoded characters are written with
_PATH = re.compile(r"[^.\s{}\[\]!:]+(?:\.[^.\s{}\[\]!:]+)*")


@dataclass(frozen=True, slots=True)
class PendingKey:
    """A pending key is the result of an async key function, which the publisher awaits."""

    awaitable: Awaitable[Any]

    @staticmethod
    def checked(key: Any) -> str:
        """Check a key that was awaited."""
        return _checked(key, _RETURNED)


KeyFunction = Callable[[Any], str | PendingKey]


@overload
def compile_key_function(source: KeySource, *, awaits: Literal[False] = False) -> Callable[[Any], str]: ...
@overload
def compile_key_function(source: KeySource, *, awaits: bool) -> KeyFunction: ...
def compile_key_function(source: KeySource, *, awaits: bool = False) -> KeyFunction:
    """Turn what the user gave into a function from a payload to its key.

    Args:
        source: a callable (called once per message per publish), a field name, a list of field names, or a template
            (a str with `{`). Different values of several fields never make the same key.
        awaits: whether a callable may be async; its keys are then a `PendingKey`.

    Raises:
        ConfigurationError: a template or field name that cannot work. The function made raises `ConfigurationError`
            for a missing, null or empty key and `TypeError` for a key or field that is not text (or an int, for
            fields).
    """
    if callable(source):
        return _from_callable(source, awaits)
    if isinstance(source, str):
        return _from_template(source) if "{" in source or "}" in source else _from_field(source)
    if isinstance(source, Sequence) and source and all(isinstance(field, str) for field in source):
        return _from_fields(source)
    raise unfit(
        "get_deduplication_key must be a callable, a field name, a non-empty list of field names or a template such as "
        f"'{{tenant}}:{{order_id}}', not {type(source).__name__}",
        right_type=isinstance(source, Sequence) and not source,
    )


def key_fields(source: str | Sequence[str]) -> list[str]:
    """Return the dotted paths that a field name, a list of field names or a template reads, in order.

    Raises:
        ConfigurationError: a template or field name that cannot work.
    """
    if not isinstance(source, str):
        return list(source)
    if "{" not in source and "}" not in source:
        return [source]
    return [".".join(path) for path in _parse_template(source)[1]]


@dataclass(frozen=True, slots=True)
class KeyLayout:
    """Describes how a key is made of fields: each is encoded, and stands between two literal texts.

    Attributes:
        literals: the texts before, between and behind the fields.
        paths: of the fields, from the payload to a text or an int.
        escapes: what is replaced within each field, in order.
    """

    literals: Sequence[str]
    paths: Sequence[tuple[str, ...]]
    escapes: Sequence[tuple[str, str]] = ()


def key_layout(source: str | Sequence[str]) -> KeyLayout:
    """Return how a field name, a list of field names or a template makes keys, for callers that have columns.

    Raises:
        ConfigurationError: a template or field name that cannot work.
    """
    if not isinstance(source, str):
        paths = [_parse_path(field, f"get_deduplication_key field {field!r}") for field in source]
        return KeyLayout(["", *[":"] * (len(paths) - 1), ""], paths, (("%", "%25"), (":", "%3A")))
    if "{" not in source and "}" not in source:
        return KeyLayout(["", ""], [_parse_path(source, f"get_deduplication_key={source!r}")])
    literals, paths = _parse_template(source)
    between = [_separated(literal) for literal in literals[1:-1]]
    texts = [literals[0], *(literal for literal, _ in between), literals[-1]]
    return KeyLayout(texts, paths, _encoded(mark for _, mark in between))


def portable_key_source(source: KeySource | None) -> str | list[str] | None:
    """Return the source as JSON can carry it; None for a callable, which cannot be serialized."""
    if source is None or callable(source):
        return None
    return source if isinstance(source, str) else list(source)


def _from_callable(function: Callable[[Any], Any], awaits: bool) -> KeyFunction:
    def key(payload: Any) -> str | PendingKey:
        made = function(payload)
        if awaits and inspect.isawaitable(made):
            return PendingKey(made)
        return _checked(made, _RETURNED)

    return key


def _from_field(field: str) -> KeyFunction:
    path = _parse_path(field, f"get_deduplication_key={field!r}")
    read, top = _reader([path]), path[0] if len(path) == 1 else None
    what = f"deduplication field {field!r} holds"

    def key(payload: Any) -> str:
        if type(payload) is dict and top is not None:
            text = payload.get(top)
            if type(text) is str and text:  # the usual key needs no check
                return text
        try:
            return _checked(str(read(payload)[0]), what)
        except ValueError as error:
            raise _unfit(error, what) from None

    return key


def _from_fields(fields: Sequence[str]) -> KeyFunction:
    read = _reader([_parse_path(field, f"get_deduplication_key field {field!r}") for field in fields])
    what = f"deduplication fields {list(fields)!r} hold"

    def key(payload: Any) -> str:
        try:
            texts = [str(value).replace("%", "%25").replace(":", "%3A") for value in read(payload)]
        except ValueError as error:
            raise _unfit(error, what) from None
        return _checked(":".join(texts), what)

    return key


def _from_template(template: str) -> KeyFunction:
    literals, paths = _parse_template(template)
    if not paths:
        raise ConfigurationError(
            f"deduplication template {template!r} has no field; every message would be a duplicate"
        )
    read, what = _reader(paths), f"deduplication template {template!r} made"
    between = [_separated(literal) for literal in literals[1:-1]]
    encoded = _encoded(mark for _, mark in between)
    written = "".join((literals[0], *(literal for literal, _ in between), literals[-1]))
    usual = [(char, written.count(char)) for char, _ in encoded]
    pattern = "%s".join(
        literal.replace("%", "%%") for literal in (literals[0], *(literal for literal, _ in between), literals[-1])
    )

    def key(payload: Any) -> str:
        try:
            values = read(payload)
            made = pattern % tuple(values)
        except ValueError as error:
            raise _unfit(error, what) from None
        for special, count in usual:
            if made.count(special) != count:  # a field holds it, which is rare
                return pattern % tuple([_encode(str(value), encoded) for value in values])
        return _checked(made, what)

    return key


def _separated(literal: str) -> tuple[str, str]:
    """Return the text between two fields, and the character of it that no field before it may contain.

    It is the first that is no letter or digit, else the first that escapes are not written with. Where there is none,
    as between adjacent fields, a `:` is added.
    """
    marks = [char for char in literal if char not in _ESCAPES]
    mark = next((char for char in marks if not char.isalnum()), marks[0] if marks else "")
    return (literal, mark) if mark else (f"{literal}:", ":")


def _encoded(marks: Iterable[str]) -> list[tuple[str, str]]:
    """Return the characters to replace in each field, in order, with their replacements; none for a single field."""
    specials = dict.fromkeys(marks)
    return [(char, _percent(char)) for char in ("%", *specials)] if specials else []


def _encode(text: str, encoded: Iterable[tuple[str, str]]) -> str:
    for char, code in encoded:
        text = text.replace(char, code)
    return text


def _percent(char: str) -> str:
    return "".join(f"%{byte:02X}" for byte in char.encode(errors="surrogatepass"))


def _unfit(error: ValueError, what: str) -> ConfigurationError:
    """Return an error for a field that Python cannot write; an error of this module stays as it is."""
    if isinstance(error, ConfigurationError):
        return error
    return ConfigurationError(f"{what} an int of too many digits for a key; send it as a str")


def _reader(paths: Sequence[tuple[str, ...]]) -> Callable[[Any], list[Any]]:
    """Make a function that reads fields of a payload; it is fast for the usual case, the top fields of a plain dict."""
    top_fields = [path[0] for path in paths] if all(len(path) == 1 for path in paths) else []

    def read(payload: Any) -> list[Any]:
        if top_fields and type(payload) is dict:
            values = [payload.get(field) for field in top_fields]
            if _TEXT.issuperset(map(type, values)):
                return values
        return [_lookup(payload, path) for path in paths]

    return read


def _parse_template(template: str) -> tuple[list[str], list[tuple[str, ...]]]:
    literals, paths, last = [""], [], 0
    for match in _PIECE.finditer(template):
        literals[-1] += template[last : match.start()]
        last = match.end()
        piece, field = match.group(), match.group(1)
        if piece in ("{{", "}}"):
            literals[-1] += piece[0]
        elif field is None:
            raise ConfigurationError(f"deduplication template {template!r} has an unpaired {piece!r}; write it twice")
        else:
            paths.append(_parse_path(field, f"field {{{field}}} of the deduplication template {template!r}"))
            literals.append("")
    literals[-1] += template[last:]
    return literals, paths


def _parse_path(field: str, where: str) -> tuple[str, ...]:
    if not _PATH.fullmatch(field):
        raise ConfigurationError(
            f"{where} is not a dotted path of dict keys; format specs, conversions, indexes and positional "
            f"fields are not allowed"
        )
    return tuple(field.split("."))


def _lookup(payload: Any, path: tuple[str, ...]) -> str:
    value = payload
    for depth, name in enumerate(path):
        if not isinstance(value, Mapping):
            where = ".".join(path[:depth]) or "the payload"
            raise ConfigurationError(
                f"deduplication field {'.'.join(path)!r} needs a dict at {where}, found {type(value).__name__}"
            )
        if name not in value:
            raise ConfigurationError(f"deduplication field {'.'.join(path)!r} is missing from the payload")
        value = value[name]
    if value is None:
        raise ConfigurationError(f"deduplication field {'.'.join(path)!r} is null in the payload")
    kind = type(value)
    if kind is str:
        return value  # type: ignore[no-any-return]
    if kind is int:
        return str(value)
    raise TypeError(
        f"deduplication field {'.'.join(path)!r} must be a str or an int, not {kind.__name__}; publish it as a str, or "
        "give get_deduplication_key a function that makes its text"
    )


def _checked(key: Any, what: str) -> str:
    if key is None or key == "":
        raise ConfigurationError(f"{what} {key!r}; a deduplication key must be a non-empty str")
    if not isinstance(key, str):
        if inspect.isawaitable(key):
            if inspect.iscoroutine(key):
                key.close()
            raise TypeError(
                f"{what} an awaitable ({type(key).__name__}), which nobody awaits here; give a plain function, or use "
                "sluicegate.asyncio.RedisMessageQueue"
            )
        raise TypeError(f"{what} a {type(key).__name__}; a deduplication key must be a str")
    return key
