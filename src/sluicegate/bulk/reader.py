"""Read what is published, and remember the place of each message."""

from __future__ import annotations

import functools
import hashlib
import inspect
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from sluicegate.errors import (
    BatchChangedError,
    ConfigurationError,
    PayloadTooDeepError,
    PayloadTooLargeError,
    PublishUnknownError,
    RedisMessageQueueError,
)

if TYPE_CHECKING:
    from sluicegate.core.publishing import Publishing

__all__ = ["Reader", "check_messages"]

_DIGEST_BYTES = 12  # short, because Redis keeps the key of every message twice
_PERMANENT = (BatchChangedError, ConfigurationError, PayloadTooDeepError, PayloadTooLargeError)


@dataclass(slots=True)
class Reader:
    """Reads numbered messages and transforms them.

    It remembers the numbers of the last batches, so that an error can name the message that caused it.

    Attributes:
        source: numbers and messages.
        describe: turns a number into a location such as `orders.csv, line 7`.
        transform: turns a message into what is published; None drops it.
        batch_size: messages per call; only the numbers of two batches are remembered.
        is_at_hand: whether the source never waits for its next message, so that a batch can be read while Redis works
            on the one before.
        dropped: messages that `transform` dropped.
        failure: why reading stopped, once it did.
    """

    source: Iterable[tuple[int, Any]]
    describe: Callable[[int], str]
    transform: Callable[[Any], Any] | None
    batch_size: int
    is_at_hand: bool = False
    dropped: int = 0
    failure: str | None = None
    _yielded: int = 0
    _key_error: Exception | None = None
    _reads_tables: bool = False
    _numbers: deque[int] = field(init=False)

    def __post_init__(self) -> None:
        # One more than the batch that Redis works on and the next: a batch that its bytes end is sent after the first
        # message of the next one was read.
        self._numbers = deque(maxlen=2 * self.batch_size + 1)

    def messages(self, publishing: Publishing) -> Iterable[Any]:
        """Return what to publish: this reader, or the rows of its tables, encoded by columns, if nothing needs dicts.

        Args:
            publishing: how the queue encodes messages.
        """
        named = publishing.key_function is None or publishing.key_source is not None
        if self.transform is not None or not named or not getattr(self.source, "is_table", False):
            return self
        self._reads_tables = True
        return self._of_tables(publishing)

    def _of_tables(self, publishing: Publishing) -> Iterator[Any]:
        from sluicegate.tables.rows import SLICE_ROWS, TableRows

        source: Any = self.source
        read = 0

        def batches() -> Iterator[Any]:
            nonlocal read
            for batch in source.batches(SLICE_ROWS):
                read += batch.num_rows
                yield batch

        try:
            yield from TableRows(batches(), publishing)
        except Exception as error:
            if self.failure is None and getattr(error, "position", None) is None:
                self.failure = self._reading_failure(error, f" after {self.describe(read)}" if read else "")
            raise

    def watch(self, key_function: Callable[[Any], Any]) -> Callable[[Any], Any]:
        """Return the user's key function; the reader remembers what it raises, because that may quote a payload."""

        @functools.wraps(key_function)
        def call(message: Any) -> Any:
            try:
                return key_function(message)
            except Exception as error:
                self._key_error = error
                raise

        return call

    def position_key(self, work: str) -> Callable[[Any], str]:
        """Return a key function that names a message by the work that publishes it and its place in the input.

        Args:
            work: the name of the work, which its retries share.
        """
        digest = hashlib.blake2b(work.encode(), digest_size=_DIGEST_BYTES).hexdigest()
        # The queue asks for the key of a message before it reads the next one.
        return lambda _: f"{digest}:{self._numbers[-1]}"

    def explain(self, error: Exception) -> str:
        """Say which message stopped the publish, where that is known, and why."""
        if self.failure is not None:
            return self.failure
        reason = type(error).__name__ if error is self._key_error else _reason(error)
        location = self._location(getattr(error, "position", None))
        return reason if location is None else f"{location}: {reason}"

    def is_permanent(self, error: Exception) -> bool:
        """Return whether an error is one of the input or of an argument, which another try would meet again."""
        verdict = getattr(error, "is_permanent", None)  # of a source that knows
        if isinstance(verdict, bool):
            return verdict
        if isinstance(error, _PERMANENT):
            return True
        by_the_user = self.failure is not None or error is self._key_error  # whose code may depend on anything
        return isinstance(error, (TypeError, ValueError)) and not by_the_user

    def __iter__(self) -> Iterator[Any]:
        number = 0
        try:
            for number, message in self.source:
                payload = message if self.transform is None else self._transformed(number, message)
                if payload is None:
                    self.dropped += 1
                    continue
                self._numbers.append(number)
                self._yielded += 1
                yield payload
        except Exception as error:
            if self.failure is None:
                after = f" after {self.describe(number)}" if number else ""
                self.failure = self._reading_failure(error, after)
            raise

    @staticmethod
    def _reading_failure(error: Exception, after: str) -> str:
        if isinstance(error, RedisMessageQueueError):
            return str(error)
        # An error of the user's code may quote a payload, so only its type is repeated.
        return f"reading stopped{after}: {error if isinstance(error, OSError) else type(error).__name__}"

    def _location(self, position: object) -> str | None:
        """Return the location of the message that was yielded at `position`, from 0; None when it is forgotten."""
        if not isinstance(position, int):
            return None
        if self._reads_tables:
            return self.describe(position + 1)
        back = self._yielded - position
        return self.describe(self._numbers[-back]) if 0 < back <= len(self._numbers) else None

    def _transformed(self, number: int, message: Any) -> Any:
        assert self.transform is not None
        try:
            return self.transform(message)
        except Exception as error:
            self.failure = f"{self.describe(number)}: transform raised {type(error).__name__}"
            raise


def check_messages(messages: Any, what: str = "messages") -> Iterable[Any]:
    """Return an iterable of messages as it is.

    Args:
        messages: what is published.
        what: its name in errors.

    Raises:
        ConfigurationError: it is asynchronous, a single message, or no iterable.
    """
    if inspect.isawaitable(messages) or hasattr(messages, "__aiter__"):
        if inspect.iscoroutine(messages):
            messages.close()
        raise ConfigurationError(f"{what} is asynchronous; give a plain function or generator")
    if isinstance(messages, (str, bytes, Mapping)) or not isinstance(messages, Iterable):
        raise ConfigurationError(
            f"{what} must be an iterable of messages, or a function that returns one, not {_kind(messages)}"
        )
    return messages


def _kind(value: object) -> str:
    if isinstance(value, Mapping):
        return "a dict (wrap a single message in a list)"
    return "None" if value is None else f"a {type(value).__name__}"


def _reason(error: BaseException) -> str:
    if isinstance(error, PublishUnknownError) and error.__cause__ is not None:
        return _reason(error.__cause__)  # its own text is about repeating calls; here the work is retried
    of_redis = type(error).__module__.partition(".")[0] == "redis"
    if of_redis or isinstance(error, (RedisMessageQueueError, TypeError, ValueError)):
        return str(error)
    return type(error).__name__
