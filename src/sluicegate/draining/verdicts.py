"""The verdicts of a handler on single messages: through its context while it works, and by what it returns."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal, cast, get_args

from sluicegate import checks
from sluicegate._lease_base import Verdict
from sluicegate.core import policies
from sluicegate.errors import AlreadySettledError
from sluicegate.message import Message

__all__ = ["MessageVerdict", "Verb", "VerdictCollector", "VerdictError", "deliveries", "to_verdicts"]

Verb = Literal["ack", "nack", "release", "bury"]
_VERBS: tuple[str, ...] = get_args(Verb)
_KNOWN = ", ".join(repr(verb) for verb in _VERBS)
_ID_COLUMNS = ("message_id", "id")  # with a declared schema, `id` may be a field of the payload


class VerdictError(ValueError):
    """The handler returned something that is no verdict on its messages; the text holds nothing of a payload."""


@dataclass(frozen=True, slots=True)
class MessageVerdict:
    """A verdict on a message.

    Attributes:
        verb: `ack`, `nack`, `release` or `bury`.
        delay_seconds: how long a nacked message is delayed; None for a time that grows with its deliveries.
        error: what went wrong; it is kept with a dead letter.
        reason: why the message is buried.

    Raises:
        ValueError, TypeError: a delay, an error or a reason that no settle takes.
    """

    verb: Verb
    delay_seconds: float | None = None
    error: BaseException | str | None = None
    reason: str = ""

    def __post_init__(self) -> None:
        delay, error, reason = self.delay_seconds, self.error, self.reason
        if delay is not None and (
            isinstance(delay, bool) or not isinstance(delay, (int, float)) or not 0 <= delay <= checks.MAX_SECONDS
        ):
            raise ValueError(f"delay_seconds must be a number of 0 or more (at most 100 years), not {delay!r}")
        if error is not None and not isinstance(error, (str, BaseException)):
            raise TypeError(f"error must be an exception or a str, not a {type(error).__name__}")
        if not isinstance(reason, str):
            raise TypeError(f"reason must be a str, not a {type(reason).__name__}")


class VerdictCollector:
    """Collects the verdicts of one call of a handler, at most one per message.

    Args:
        messages: the messages that the handler was called with.
    """

    def __init__(self, messages: Sequence[Message]) -> None:
        self.verdicts: dict[int, MessageVerdict] = {}  # by slot
        self._messages = messages
        self._by_id: dict[str, Message] | None = None
        self._closed = False

    def add(self, what: object, verdict: MessageVerdict) -> None:
        """Give a verdict to messages: to all of them or, when this raises, to none.

        Args:
            what: a `Message`, an id, several of them (a list, an Arrow or pandas column), or a table or frame with a
                column `message_id` or `id`.
            verdict: the verdict.

        Raises:
            AlreadySettledError: a message is not of this call, or it has another verdict.
            TypeError: `what` names no messages.
            RuntimeError: the call has ended.
        """
        if self._closed:
            raise RuntimeError("a verdict came after the call of the handler had ended; give it before process returns")
        self._record([(message, verdict) for message in self._named(what)])

    def close(self, result: object = None) -> dict[int, MessageVerdict]:
        """End the call, add what the handler returned, and answer all verdicts by slot.

        Args:
            result: None, a verdict for all messages, a verdict (or None) per message by position, or a table or frame
                with the columns `message_id` (or `id`), `verdict` and optionally `error` and `delay_seconds`. Messages
                without one are done.

        Raises:
            VerdictError: the result cannot be right, or is no verdict at all. A misspelt verdict or a mapping must not
                pass for "all is done", because that would lose messages.
        """
        self._closed = True
        try:
            self._record(list(self._returned(result)))
        except (ValueError, TypeError) as error:
            raise VerdictError(str(error)) from error
        return self.verdicts

    def _record(self, pairs: Sequence[tuple[Message, MessageVerdict]]) -> None:
        new: dict[int, MessageVerdict] = {}
        for message, verdict in pairs:
            earlier = new.get(message.slot) or self.verdicts.get(message.slot)
            if earlier is not None and earlier.verb != verdict.verb:
                raise AlreadySettledError(
                    f"message {message.id} has the verdict {earlier.verb!r} already, and cannot have {verdict.verb!r}"
                )
            new[message.slot] = verdict
        self.verdicts.update(new)

    def _named(self, what: object) -> list[Message]:
        columns = _columns_of(what)
        if columns is not None:
            what = _values(_id_column(what, columns))
        elif isinstance(what, (str, Message)):
            what = [what]
        return [self._one(item) for item in _values(what)]

    def _one(self, item: object) -> Message:
        if isinstance(item, Message):
            item = item.id
        if not isinstance(item, str):
            raise TypeError(f"a verdict names messages by Message or id, not by {type(item).__name__}")
        if self._by_id is None:
            self._by_id = {message.id: message for message in self._messages}
        message = self._by_id.get(item)
        if message is None:
            # The id is not shown: beside a declared schema, a column `id` holds values of the payload.
            raise AlreadySettledError(
                "a verdict names a message that is not of this batch; with a declared schema their ids are in the "
                "column 'message_id'"
            )
        return message

    def _returned(self, result: object) -> Iterator[tuple[Message, MessageVerdict]]:
        if isinstance(result, str):
            result = [_verb(result)] * len(self._messages)
        columns = _columns_of(result)
        if columns is not None:
            yield from self._from_table(result, columns)
        elif isinstance(result, (list, tuple)) or _is_column(result):
            _refuse_shuffled(result)
            verbs = _values(result)
            if len(verbs) != len(self._messages):
                raise ValueError(f"process returned {len(verbs)} verdicts for {len(self._messages)} messages")
            for message, value in zip(self._messages, verbs, strict=True):
                verb = _verb(value)
                if verb is not None:
                    yield message, MessageVerdict(verb)
        elif result is not None:
            raise TypeError(
                f"process returned a {type(result).__name__}, which is no verdict; return None where all is done, or "
                f"one of {_KNOWN} for all messages or for each, as a list, a column, or a table with 'message_id'"
            )

    def _from_table(self, table: Any, columns: Sequence[str]) -> Iterator[tuple[Message, MessageVerdict]]:
        if "verdict" not in columns:
            raise ValueError("process returned a table without a column 'verdict'")
        verbs = _values(table["verdict"])
        nothing = [None] * len(verbs)
        errors = _values(table["error"]) if "error" in columns else nothing
        delays = _values(table["delay_seconds"]) if "delay_seconds" in columns else nothing
        ids = _values(_id_column(table, columns))
        for item, value, error, delay in zip(ids, verbs, errors, delays, strict=True):
            verb = _verb(value)
            if verb is not None:
                seconds = None if _is_missing(delay) else delay
                text = None if _is_missing(error) else str(error)
                yield self._one(item), MessageVerdict(verb, seconds, text)


def to_verdicts(messages: Iterable[Message], given: dict[int, MessageVerdict], backoff: Any) -> Iterator[Verdict]:
    """Group equal verdicts for a settle; `backoff` gives the delay of a nack that has none of its own."""
    groups: dict[tuple[object, ...], tuple[MessageVerdict, list[Message]]] = {}
    for message in messages:
        verdict = given[message.slot]
        error = verdict.error if isinstance(verdict.error, str) else id(verdict.error)  # some exceptions have no hash
        key = (verdict.verb, verdict.delay_seconds, error, verdict.reason)
        groups.setdefault(key, (verdict, []))[1].append(message)
    for verdict, group in groups.values():
        delay = 0.0
        if verdict.verb == "nack":
            own = verdict.delay_seconds
            delay = policies.pause_seconds(backoff, deliveries(group)) if own is None else own
        yield Verdict(verdict.verb, group, delay, verdict.error, verdict.reason)


def deliveries(messages: Iterable[Message]) -> int:
    """Return the delivery count of the message that was delivered most often."""
    return max(message.delivery_count for message in messages)


def _verb(value: object) -> Verb | None:
    if _is_missing(value):
        return None
    if isinstance(value, str) and value in _VERBS:
        return cast("Verb", value)
    shown = repr(value) if isinstance(value, str) and len(value) <= 20 else f"a {type(value).__name__}"
    raise ValueError(f"a verdict must be one of {_KNOWN} or None, not {shown}")


def _is_missing(value: object) -> bool:
    """Return whether a value is None or pandas' missing value."""
    return (
        value is None
        or type(value).__name__ in ("NAType", "NaTType")
        or (isinstance(value, float) and math.isnan(value))
    )


def _columns_of(what: Any) -> list[str] | None:
    """Return the column names of an Arrow table or batch, or of a frame; None for any other value."""
    if isinstance(what, (str, bytes, Message)):
        return None
    if hasattr(what, "column_names"):
        return list(what.column_names)
    if hasattr(what, "schema") and hasattr(what, "columns"):  # a record batch of an older pyarrow
        return list(what.schema.names)
    columns = getattr(what, "columns", None)
    return None if columns is None or not hasattr(what, "iloc") else [str(name) for name in columns]


def _id_column(table: Any, columns: Sequence[str]) -> Any:
    for name in _ID_COLUMNS:
        if name in columns:
            return table[name]
    raise ValueError(f"a table of verdicts needs a column {' or '.join(map(repr, _ID_COLUMNS))}")


def _refuse_shuffled(column: Any) -> None:
    """Refuse a Series that was sorted after it was made of the batch: its positions are not those of the messages.

    Raises:
        ValueError: the labels are those of the positions, in another order.
    """
    if not hasattr(column, "iloc"):
        return
    labels, positions = list(column.index), list(range(len(column)))
    if labels != positions and sorted(labels, key=str) == sorted(positions, key=str):
        raise ValueError(
            "process returned a Series of verdicts in another order than its messages; return it as "
            "verdicts.sort_index(), or a frame with the column 'message_id'"
        )


def _is_column(what: object) -> bool:
    if hasattr(what, "to_pylist"):
        return True
    return hasattr(what, "tolist") and hasattr(what, "dtype") and getattr(what, "ndim", 1) > 0  # a number has none


def _values(column: Any) -> list[Any]:
    """Return the values of a column of Arrow, pandas or numpy, or of any other iterable."""
    for name in ("to_pylist", "tolist"):
        if hasattr(column, name):
            return list(getattr(column, name)())
    if not isinstance(column, Iterable):
        raise TypeError(f"a verdict names messages by Message or id, not by {type(column).__name__}")
    return list(column)
