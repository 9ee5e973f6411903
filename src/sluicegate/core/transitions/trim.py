"""A trim removes the oldest entries of a stream that every group has finished."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import ceil
from typing import Any

from sluicegate import checks
from sluicegate.core import scripts
from sluicegate.core.call import Call, Operation
from sluicegate.core.keys import StreamKeys, text_of
from sluicegate.core.transitions.groups import delete_group_operation
from sluicegate.errors import ConfigurationError
from sluicegate.events import EventOperation, EventOutcome, QueueEvent

__all__ = ["TrimReport", "TrimRules", "Trimmed", "trim_call", "trim_operation", "trim_step"]

MOST_PER_CALL = 10_000


@dataclass(frozen=True, slots=True)
class TrimRules:
    """The options of a stream about its length.

    Attributes:
        max_length: entries that may stay; None for any number.
        max_age_seconds: age that entries may have; None for any.
        trim_unfinished: whether entries go that a group has not finished, too.
    """

    max_length: int | None = None
    max_age_seconds: float | None = None
    trim_unfinished: bool = False

    def __post_init__(self) -> None:
        checks.cap("max_length", self.max_length)
        if self.max_age_seconds is not None:
            checks.positive("max_age_seconds", self.max_age_seconds)
        checks.flag("trim_unfinished", self.trim_unfinished)
        if self.trim_unfinished and not self:
            raise ConfigurationError("trim_unfinished=True has no effect without max_length or max_age_seconds")

    def __bool__(self) -> bool:
        return self.max_length is not None or self.max_age_seconds is not None

    def portable(self) -> dict[str, Any]:
        """Return the options that differ from their defaults, as a spec carries them."""
        options = {name: getattr(self, name) for name in self.__slots__}
        return {name: value for name, value in options.items() if value not in (None, False)}


@dataclass(frozen=True, slots=True)
class Trimmed:
    """The answer to one call; see `TrimReport`."""

    trimmed: int
    unfinished: int
    length: int
    more: bool
    held_by: tuple[bytes, ...]
    expired: tuple[bytes, ...]


@dataclass(frozen=True, slots=True)
class TrimReport:
    """What a trim did.

    Attributes:
        trimmed: number of entries that it removed.
        unfinished: how many of them some group had not finished; always 0 without `trim_unfinished=True`.
        length: entries of the stream now.
        held_by: names of the groups that keep entries beyond the limits, because they have not finished them.
    """

    trimmed: int
    unfinished: int
    length: int
    held_by: tuple[str, ...]


def trim_call(keys: StreamKeys, rules: TrimRules, *, exact: bool = False, most: int = MOST_PER_CALL) -> Call[Trimmed]:
    """Prepare the call that removes at most `most` entries for each of the two limits."""
    return Call(
        scripts.load("trim"),
        (keys.stream, keys.counters, keys.groups),
        (
            rules.max_length or 0,
            ceil((rules.max_age_seconds or 0) * 1000),
            int(rules.trim_unfinished),
            int(exact),
            most,
        ),
        _decode,
    )


def trim_step(
    keys: StreamKeys, rules: TrimRules, *, exact: bool = False, patience_seconds: float | None = None
) -> Operation[Trimmed]:
    """Make one call, emit its events, and delete the temporary groups that it found expired."""
    done: Trimmed = yield replace(trim_call(keys, rules, exact=exact), patience_seconds=patience_seconds)
    if done.trimmed:
        yield QueueEvent(EventOperation.TRIM, EventOutcome.SUCCESS, keys.name, done.trimmed)
    if done.unfinished:
        yield QueueEvent(EventOperation.TRIM, EventOutcome.DROPPED, keys.name, done.unfinished)
    for name in done.expired:
        yield from delete_group_operation(keys.of_group(name.decode(errors="surrogateescape")), expired=True)
    return done


def trim_operation(keys: StreamKeys, rules: TrimRules) -> Operation[TrimReport]:
    """Remove everything beyond the limits that may go, to the very entry, in bounded calls."""
    trimmed = unfinished = 0
    while True:
        done = yield from trim_step(keys, rules, exact=True)
        trimmed, unfinished = trimmed + done.trimmed, unfinished + done.unfinished
        if not done.more:
            return TrimReport(trimmed, unfinished, done.length, tuple(text_of(name) for name in done.held_by))


def _decode(reply: list[Any]) -> Trimmed:
    trimmed, unfinished, length, more, held_by, expired = reply
    return Trimmed(trimmed, unfinished, length, bool(more), tuple(held_by), tuple(expired))
