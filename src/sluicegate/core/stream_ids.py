"""Ids of entries of a stream, `<ms>-<number>`, and the positions behind which a group reads."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from sluicegate.errors import ConfigurationError, OptionTypeError

if TYPE_CHECKING:
    from datetime import datetime

__all__ = ["Start", "StreamId", "StreamPlace", "parse_from", "parse_start", "parse_stream_id"]

StreamPlace: TypeAlias = "str | datetime"
"""An id of an entry, or an aware datetime."""

_ID = re.compile(r"([0-9]{1,20})(?:-([0-9]{1,20}))?")
_LARGEST = 2**64 - 1


class StreamId(NamedTuple):
    """The id of an entry: its time in ms since the epoch, and its number within that millisecond."""

    ms: int
    number: int

    def __str__(self) -> str:
        return f"{self.ms}-{self.number}"

    @property
    def before(self) -> StreamId:
        """Return the greatest id before this one; the first id of all has none, and is its own."""
        if self.number:
            return StreamId(self.ms, self.number - 1)
        return StreamId(self.ms - 1, _LARGEST) if self.ms else self


class Start(NamedTuple):
    """Where a group starts.

    Attributes:
        text: what the caller asked for.
        position: the id behind which the group reads, or `$` for the end of the stream.
    """

    text: str
    position: str


def parse_stream_id(name: str, text: Any) -> StreamId:
    """Read an id such as `1764430218000-5`; without its second part it means the first of that millisecond.

    Args:
        name: of the argument.
        text: its value.

    Raises:
        ConfigurationError: it is no such id.
    """
    if not isinstance(text, str):
        raise OptionTypeError(f"{name} must be a str such as '1764430218000-5', not {type(text).__name__}")
    found = _ID.fullmatch(text)
    parts = (int(found[1]), int(found[2] or 0)) if found else (_LARGEST + 1, 0)
    if max(parts) > _LARGEST:
        raise ConfigurationError(f"{name} must be an id of a stream such as '1764430218000-5', not {text!r}")
    return StreamId(*parts)


def parse_start(start: Any) -> Start:
    """Read where a group starts: `beginning`, `end`, the id of the first message, or the time of the first message.

    Raises:
        ConfigurationError: it is none of these.
    """
    if start == "beginning":
        return Start("beginning", "0-0")
    if start == "end":
        return Start("end", "$")
    if start is None:
        raise ConfigurationError("start is missing: give 'beginning', 'end', an id or an aware datetime")
    if isinstance(start, str) and not _ID.fullmatch(start):
        raise ConfigurationError(
            f"start must be 'beginning', 'end', an id such as '1764430218000-5' or an aware datetime, not {start!r}"
        )
    first = parse_stream_id("start", start) if isinstance(start, str) else _id_at("start", start)
    return Start(str(first), str(first.before))


def parse_from(from_id: Any, from_time: Any) -> StreamId:
    """Read from which message on a replay delivers again: by its id or by its time.

    Raises:
        ConfigurationError: neither or both are given, or one is unfit.
    """
    if (from_id is None) == (from_time is None):
        raise ConfigurationError("a replay needs exactly one of from_id and from_time")
    return parse_stream_id("from_id", from_id) if from_time is None else _id_at("from_time", from_time)


def _id_at(name: str, time: Any) -> StreamId:
    """Return the first id of a time."""
    # By what it can do, not by its class: the core has no `datetime`, whose `now` would be a clock of its own.
    if not hasattr(time, "utcoffset") or not hasattr(time, "timestamp"):
        raise OptionTypeError(f"{name} must be an aware datetime, not {type(time).__name__}")
    if time != time or time.utcoffset() is None:  # noqa: PLR0124  (pandas' NaT is unequal to itself)
        raise ConfigurationError(
            f"{name} is a naive datetime or none at all: it names no instant; give it a time zone, such as "
            "datetime(..., tzinfo=UTC)"
        )
    return StreamId(max(0, round(time.timestamp() * 1_000_000) // 1000), 0)
