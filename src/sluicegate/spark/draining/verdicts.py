"""What a handler says of single messages: through its context while it works, and by what it returns."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal, cast, get_args

from sluicegate import checks
from sluicegate._lease_values import Verdict
from sluicegate.core import policies
from sluicegate.message import Message

__all__ = ["Given", "Verb", "VerdictError", "Word", "to_verdicts"]

Verb = Literal["ack", "nack", "release", "bury"]
_VERBS: tuple[str, ...] = get_args(Verb)
_KNOWN = ", ".join(repr(verb) for verb in _VERBS)
_ID_COLUMNS = ("message_id", "id")  # with a declared schema, `id` may be a field of the payload


class VerdictError(ValueError):
    """What a handler returned is no verdict on its messages; the text holds nothing of a payload."""


@dataclass(frozen=True, slots=True)
class Word:
    """What is to become of a message.

    Attributes:
        verb: `ack`, `nack`, `release` or `bury`.
        delay_seconds: how long a nack stays out of reach; None for a time that grows with its deliveries.
        error: what went wrong, kept with a dead letter.
        reason: why it is buried.

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


class Given:
    """The verdicts of one call of a handler, one per message at most.

    Args:
        messages: of the call.
    """

    def __init__(self, messages: Sequence[Message]) -> None:
        self.words: dict[int, Word] = {}  # by slot
        self._messages = messages
        self._by_id: dict[str, Message] | None = None
        self._closed = False

    def say(self, what: object, word: Word) -> None:
        """Give a verdict to messages: all of them or, with an error, none.

        Args:
            what: a `Message`, an id, several of them (a list, an Arrow or pandas column), or a table or frame with a
                column `message_id` or `id`.
            word: the verdict.

        Raises:
            ValueError: a message that is not of this call, or has another verdict.
            TypeError: something that names no messages.
            RuntimeError: the call has ended.
        """
        if self._closed:
            raise RuntimeError("a verdict came after the call of the handler had ended; give it before it returns")
        self._note([(message, word) for message in self._named(what)])

    def close(self, result: object = None) -> dict[int, Word]:
        """End the call: add what the handler returned, and give all its verdicts by slot.

        Args:
            result: None, a verdict for all messages, a verdict (or None) per message by position, or a table or frame
                with the columns `message_id` (or `id`), `verdict` and optionally `error` and `delay_seconds`. Messages
                without one are done.

        Raises:
            VerdictError: verdicts that cannot be right, or something else than verdicts: to take a misspelt word or a
                mapping for "all is done" would lose messages.
        """
        self._closed = True
        try:
            self._note(list(self._returned(result)))
        except (ValueError, TypeError) as error:
            raise VerdictError(str(error)) from error
        return self.words

    def _note(self, pairs: Sequence[tuple[Message, Word]]) -> None:
        told: dict[int, Word] = {}
        for message, word in pairs:
            earlier = told.get(message.slot) or self.words.get(message.slot)
            if earlier is not None and earlier.verb != word.verb:
                raise ValueError(f"message {message.id} has the verdict {earlier.verb!r}, and now {word.verb!r}")
            told[message.slot] = word
        self.words.update(told)

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
            # Not shown: beside a declared schema a column `id` is one of the payload.
            raise ValueError(
                "a verdict names a message that is not of this batch; with a declared schema their ids are in the "
                "column 'message_id'"
            )
        return message

    def _returned(self, result: object) -> Iterator[tuple[Message, Word]]:
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
                    yield message, Word(verb)
        elif result is not None:
            raise TypeError(
                f"process returned a {type(result).__name__}, which is no verdict; return None where all is done, or "
                f"one of {_KNOWN} for all messages or for each, as a list, a column, or a table with 'message_id'"
            )

    def _from_table(self, table: Any, columns: Sequence[str]) -> Iterator[tuple[Message, Word]]:
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
                yield self._one(item), Word(verb, seconds, None if _is_missing(error) else str(error))


def to_verdicts(messages: Iterable[Message], words: dict[int, Word], backoff: Any) -> Iterator[Verdict]:
    """As few verdicts as say the same; a nack without a delay of its own waits as `backoff` says."""
    groups: dict[tuple[object, ...], tuple[Word, list[Message]]] = {}
    for message in messages:
        word = words[message.slot]
        error = word.error if isinstance(word.error, str) else id(word.error)  # not every exception can be hashed
        key = (word.verb, word.delay_seconds, error, word.reason)
        groups.setdefault(key, (word, []))[1].append(message)
    for word, group in groups.values():
        delay = 0.0
        if word.verb == "nack":
            own = word.delay_seconds
            delay = policies.pause_seconds(backoff, deliveries(group)) if own is None else own
        yield Verdict(word.verb, group, delay, word.error, word.reason)


def deliveries(messages: Iterable[Message]) -> int:
    """Of the message that was delivered most often."""
    return max(message.delivery_count for message in messages)


def _verb(value: object) -> Verb | None:
    if _is_missing(value):
        return None
    if isinstance(value, str) and value in _VERBS:
        return cast("Verb", value)
    shown = repr(value) if isinstance(value, str) and len(value) <= 20 else f"a {type(value).__name__}"
    raise ValueError(f"a verdict must be one of {_KNOWN} or None, not {shown}")


def _is_missing(value: object) -> bool:
    """None, or what pandas puts in its place."""
    return (
        value is None
        or type(value).__name__ in ("NAType", "NaTType")
        or (isinstance(value, float) and math.isnan(value))
    )


def _columns_of(what: Any) -> list[str] | None:
    """Names of the columns of an Arrow table or batch, or of a frame; None for anything else."""
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
    """A Series in another order than the frame it was made from is one of a sorted frame: its positions are others.

    Raises:
        ValueError: its labels are those of the positions, in another order.
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
    """The values of a column of whatever library, or of any other iterable."""
    for name in ("to_pylist", "tolist"):
        if hasattr(column, name):
            return list(getattr(column, name)())
    if not isinstance(column, Iterable):
        raise TypeError(f"a verdict names messages by Message or id, not by {type(column).__name__}")
    return list(column)
