"""Masks hide parts of payloads and headers by their paths, so that the page shows no secrets."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from sluicegate.errors import ConfigurationError, OptionTypeError

__all__ = ["HIDDEN", "Masked", "Masks"]

HIDDEN = "•••"
_MAX_BYTES = 4 * 1024 * 1024
_MIN_SECRET = 3  # a shorter value is found in texts that have nothing to do with it
_SEPARATORS = (",", ":")


@dataclass
class Masked:
    """A payload as it may be shown.

    Attributes:
        text: of the payload.
        format: `json`, `text`, `binary`, or `hidden` when masks are set and cannot be applied to it.
        hidden: number of values that were masked.
        secrets: those values, which must not be shown in other texts about the message either.
    """

    text: str
    format: str
    hidden: int = 0
    secrets: set[str] = field(default_factory=set, repr=False)

    def redact(self, text: str) -> str:
        """Mask the values in another text about the same message, such as an error."""
        for secret in sorted(self.secrets, key=len, reverse=True):
            text = text.replace(secret, HIDDEN)
        return text


class Masks:
    """Hides values by their path in a JSON payload, or by the name of their header.

    A pattern is a dotted path without regard to case, and covers everything below it: `card.number`. `*` stands for
    any one name; at the beginning, `*.password` means a `password` at any depth. Lists add nothing to a path:
    `lines.price` hides the price of every line. A header is `headers.authorization`, and patterns that begin with `*.`
    hide headers, too. A payload that is no JSON has no paths, so it is not shown at all while there are masks.

    Args:
        patterns: of what to hide.

    Raises:
        ConfigurationError: a pattern that is blank or has an empty part.
    """

    def __init__(self, patterns: Sequence[str] = ()) -> None:
        if isinstance(patterns, str):
            raise OptionTypeError("masks must be several patterns, such as a list; put the one pattern into a list")
        self._anywhere: list[tuple[str, ...]] = []
        self._rooted: list[tuple[str, ...]] = []
        for pattern in patterns:
            parts = tuple(pattern.casefold().split("."))
            if not all(part.strip() for part in parts):
                raise ConfigurationError(f"mask {pattern!r} has an empty part; write a path such as card.number")
            if parts[0] == "*" and len(parts) > 1:
                self._anywhere.append(parts[1:])
            else:
                self._rooted.append(parts)

    def __bool__(self) -> bool:
        return bool(self._anywhere or self._rooted)

    def payload(self, stored: bytes) -> Masked:
        """Return a payload as it may be shown."""
        if not self:
            return _plain(stored)
        if len(stored) > _MAX_BYTES:
            return Masked("", "hidden", 1)
        try:
            value = json.loads(stored)
            if not isinstance(value, (dict, list)):
                return Masked("", "hidden", 1)
            masked = Masked("", "json")
            shown = self._cover(value, (), masked)
            # `allow_nan` and `surrogatepass`: whatever was stored is shown, although no publisher of ours stores it.
            masked.text = json.dumps(shown, ensure_ascii=False, separators=_SEPARATORS)
        except (ValueError, RecursionError):  # also the error about bytes that are not UTF-8
            return Masked("", "hidden", 1)
        return masked

    def headers(self, headers: Mapping[str, str], masked: Masked) -> dict[str, str]:
        """Return headers as they may be shown, and add what was hidden to the message's secrets."""
        shown = {}
        for name, value in headers.items():
            if self._covers(("headers", name.casefold())):
                _add_secrets(value, masked)
                shown[name] = HIDDEN
            else:
                shown[name] = value
        return shown

    def _cover(self, value: Any, path: tuple[str, ...], masked: Masked) -> Any:
        if isinstance(value, dict):
            shown = {}
            for name, inner in value.items():
                below = (*path, name.casefold())
                if self._covers(below):
                    _add_secrets(inner, masked)
                    shown[name] = HIDDEN
                else:
                    shown[name] = self._cover(inner, below, masked)
            return shown
        if isinstance(value, list):
            return [self._cover(inner, path, masked) for inner in value]
        return value

    def _covers(self, path: tuple[str, ...]) -> bool:
        """Return whether a value at exactly this path is hidden; a name with dots in it is several parts as well."""
        flat = tuple(part for name in path for part in name.split("."))
        return any(_fits(path, rule) or _fits(flat, rule) for rule in self._rooted) or any(
            _fits(path[-len(rule) :], rule) or _fits(flat[-len(rule) :], rule) for rule in self._anywhere
        )


def _fits(path: tuple[str, ...], rule: tuple[str, ...]) -> bool:
    return len(path) == len(rule) and all(part in ("*", name) for name, part in zip(path, rule, strict=True))


def _plain(stored: bytes) -> Masked:
    """Return a payload of which nothing is hidden."""
    try:
        text = stored.decode()
    except UnicodeDecodeError:
        return Masked(stored.decode(errors="backslashreplace"), "binary")
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return Masked(text, "text")
    return Masked(text, "json")


def _add_secrets(value: Any, masked: Masked) -> None:
    masked.hidden += 1
    for leaf in _leaves(value):
        text = leaf if isinstance(leaf, str) else json.dumps(leaf)
        if len(text) >= _MIN_SECRET and not isinstance(leaf, bool):
            masked.secrets.add(text)


def _leaves(value: Any) -> Iterator[Any]:
    if isinstance(value, dict):
        for name, inner in value.items():
            yield name
            yield from _leaves(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _leaves(inner)
    elif value is not None:
        yield value
