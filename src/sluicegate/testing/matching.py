"""These classes compare published messages with an expectation and describe the differences, without I/O."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from sluicegate.core import json
from sluicegate.core.publishing import encode_payload
from sluicegate.message import Message

__all__ = ["ANYTHING", "STATES", "DrainCounts", "Expectation", "Found"]

# A claim takes messages in this order.
STATES: tuple[Literal["returned", "pending", "delayed"], ...] = ("returned", "pending", "delayed")
_MAX_SHOWN = 10
_MAX_CHARACTERS = 200


class _Anything:
    def __repr__(self) -> str:
        return "anything"


ANYTHING: Any = _Anything()


@dataclass(slots=True)
class DrainCounts:
    """These counts describe a call of `drain_inline`.

    Attributes:
        handled: number of deliveries whose handler returned.
        failed: number of deliveries whose handler raised.
        errors: the errors of the handlers, in order.
    """

    handled: int = 0
    failed: int = 0
    errors: list[Exception] = field(default_factory=list)

    @property
    def deliveries(self) -> int:
        """Return the number of all deliveries."""
        return self.handled + self.failed


@dataclass(frozen=True, slots=True)
class Found:
    """This is a message that waits in a queue, with its state."""

    state: str
    message: Message


@dataclass(frozen=True, slots=True)
class Expectation:
    """An expectation says which messages to find, and how many; None means at least one."""

    payload: Any = ANYTHING
    key: Any = ANYTHING
    headers: Mapping[str, str] | None = None
    count: int | None = None

    def check(self, queue: str, found: Sequence[Found], in_flight: int) -> list[Message]:
        """Return the messages that match.

        Raises:
            AssertionError: another number of messages matches; the text lists the waiting messages.
        """
        misses = [self._miss(each.message) for each in found]
        meant = [each.message for each, miss in zip(found, misses, strict=True) if miss is None]
        if (len(meant) > 0) if self.count is None else (len(meant) == self.count):
            return meant
        wanted = "at least 1" if self.count is None else str(self.count)
        lines = [f"queue {queue!r}: expected {wanted} with {self}, found {len(meant)} of {len(found)} waiting"]
        # Near misses come first, because they show what is wrong with an expectation.
        order = sorted(range(len(found)), key=lambda at: len(misses[at] or ()))
        lines += [_line(found[at], misses[at]) for at in order[:_MAX_SHOWN]]
        if len(found) > _MAX_SHOWN:
            lines.append(f"  and {len(found) - _MAX_SHOWN} more")
        if in_flight:
            lines.append(f"  {in_flight} in flight, which are not checked")
        raise AssertionError("\n".join(lines))

    def __str__(self) -> str:
        parts = [
            f"{name}={_short(repr(value))}"
            for name, value in (("payload", self.payload), ("key", self.key), ("headers", self.headers))
            if (value is not ANYTHING and value is not None) or (name == "key" and value is None)
        ]
        return " and ".join(parts) or "any payload"

    def _miss(self, message: Message) -> list[str] | None:
        """Return how a message differs from the expectation; None if it matches."""
        misses = []
        if self.key is not ANYTHING and message.deduplication_key != self.key:
            misses.append(f"its key is {_short(repr(message.deduplication_key))}")
        headers = message.headers
        misses += [
            f"its header {name!r} is {_short(repr(headers.get(name)))}"
            for name, value in (self.headers or {}).items()
            if headers.get(name) != value
        ]
        if self.payload is not ANYTHING and (where := _difference(self.payload, message)) is not None:
            misses.append(where)
        return misses or None


def _line(found: Found, miss: list[str] | None) -> str:
    message = found.message
    text = _short(message.payload.decode(errors="backslashreplace"))
    return f"  {'=' if miss is None else '≠'} {message.id} {found.state} {text}" + (
        f"\n      {', '.join(miss)}" if miss else ""
    )


def _difference(expected: Any, message: Message) -> str | None:
    """Return where a payload first differs from the expected one; None if it is equal."""
    stored = encode_payload(expected)
    if stored == message.payload:
        return None
    if isinstance(expected, str | bytes):
        return "its payload differs"
    try:
        actual = message.json()
    except ValueError:
        return "its payload is not JSON"
    return _first_difference(json.loads(stored), actual, "payload")


def _first_difference(expected: Any, actual: Any, path: str) -> str | None:
    if isinstance(expected, dict) and isinstance(actual, dict):
        for name in [*expected, *(name for name in actual if name not in expected)]:
            if name not in actual:
                return f"{path}.{name} is missing"
            if name not in expected:
                return f"{path}.{name} is not expected"
            if where := _first_difference(expected[name], actual[name], f"{path}.{name}"):
                return where
        return None
    if isinstance(expected, list) and isinstance(actual, list):
        for at, (one, other) in enumerate(zip(expected, actual, strict=False)):
            if where := _first_difference(one, other, f"{path}[{at}]"):
                return where
        if len(expected) != len(actual):
            return f"{path} has {len(actual)} items, not {len(expected)}"
        return None
    if expected == actual and type(expected) is type(actual):
        return None
    return f"{path} is {_short(repr(actual))}, not {_short(repr(expected))}"


def _short(text: str) -> str:
    if len(text) <= _MAX_CHARACTERS:
        return text
    return f"{text[:_MAX_CHARACTERS]}… ({len(text) - _MAX_CHARACTERS} more characters)"
