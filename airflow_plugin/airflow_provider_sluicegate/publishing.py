"""Publish a stream of messages with counts, progress, and errors that say where it stopped."""

from __future__ import annotations

import functools
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Protocol

import redis

from airflow_provider_sluicegate.sources import MalformedMessageFileError
from sluicegate import PublishReport, RedisMessageQueue
from sluicegate.core.durability import DurabilityOption
from sluicegate.errors import (
    ConfigurationError,
    NotDurableError,
    PayloadTooDeepError,
    PayloadTooLargeError,
    PublishUnknownError,
    RedisMessageQueueError,
)

__all__ = ["Log", "PublishStoppedError", "Publisher", "Reader"]

_PERMANENT = (ConfigurationError, MalformedMessageFileError, PayloadTooDeepError, PayloadTooLargeError)


class Log(Protocol):
    """Declares the part of an operator's logger that a publisher uses."""

    def info(self, event: str, *args: Any) -> Any: ...


class PublishStoppedError(RedisMessageQueueError):
    """
    A publish stopped before its end; the batches before it stay published.

    :ivar published: messages published before it stopped.
    :ivar duplicates: messages refused as duplicates before it stopped.
    :ivar batches: calls that took effect.
    :ivar is_permanent: whether another try of the same input would stop at the same place.
    """

    def __init__(self, message: str, *, published: int, duplicates: int, batches: int, is_permanent: bool) -> None:
        super().__init__(message)
        self.is_permanent = is_permanent
        self.published = published
        self.duplicates = duplicates
        self.batches = batches


@dataclass(slots=True)
class Reader:
    """
    Reads numbered messages and transforms them.

    It remembers the numbers of the current batch, so that an error can name the message that caused it.

    :param source: numbers and messages.
    :param describe: turns a number into a location such as ``orders.csv, line 7``.
    :param transform: turns a message into what is published; None drops it.
    :param batch_size: messages per call; only the numbers of one batch are remembered.
    """

    source: Iterable[tuple[int, Any]]
    describe: Callable[[int], str]
    transform: Callable[[Any], Any] | None
    batch_size: int
    dropped: int = 0
    failure: str | None = None
    _yielded: int = 0
    _key_error: Exception | None = None
    _numbers: deque[int] = field(init=False)

    def __post_init__(self) -> None:
        # One more than a batch: a batch that its bytes end is sent after the first message of the next one was read.
        self._numbers = deque(maxlen=self.batch_size + 1)

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

    def explain(self, error: Exception) -> str:
        """Say which message stopped the publish, where that is known, and why."""
        if self.failure is not None:
            return self.failure
        reason = type(error).__name__ if error is self._key_error else _reason(error)
        location = self._location(getattr(error, "position", None))
        return reason if location is None else f"{location}: {reason}"

    def is_permanent(self, error: Exception) -> bool:
        """Return whether an error is one of the input or of an argument, which another try would meet again."""
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
        """Return the location of the message that was yielded at ``position``, from 0; None when it is forgotten."""
        if not isinstance(position, int):
            return None
        back = self._yielded - position
        return self.describe(self._numbers[-back]) if 0 < back <= len(self._numbers) else None

    def _transformed(self, number: int, message: Any) -> Any:
        assert self.transform is not None
        try:
            return self.transform(message)
        except Exception as error:
            self.failure = f"{self.describe(number)}: transform raised {type(error).__name__}"
            raise


@dataclass(slots=True)
class Publisher:
    """
    Publishes the messages of a reader and counts them. One batch is in memory at a time.

    :param queue: the queue to publish to.
    :param reader: the messages.
    :param window_seconds: how long the queue refuses duplicates; None for a queue without deduplication.
    :param log: receives the progress, as counts only.
    :param progress_interval_seconds: time between two lines of progress.
    """

    queue: RedisMessageQueue
    reader: Reader
    window_seconds: float | None
    log: Log
    progress_interval_seconds: float
    published: int = 0
    duplicates: int = 0
    batches: int = 0
    first_id: str | None = None
    last_id: str | None = None
    _started: float = field(default_factory=time.monotonic)

    def run(
        self,
        *,
        batch_size: int,
        headers: Mapping[str, str] | None,
        delay_seconds: float = 0,
        due_at: datetime | None = None,
        durability: DurabilityOption = "memory",
    ) -> dict[str, Any]:
        """
        Publish everything and return the report.

        :raises PublishStoppedError: reading or publishing failed; says where, why, and what was published before.
        """
        logged = self._started
        try:
            for batch in self.queue.publish_chunks(
                self.reader,
                batch_size=batch_size,
                headers=headers,
                delay_seconds=delay_seconds,
                due_at=due_at,
                durability=durability,
            ):
                self._count(batch)
                if time.monotonic() - logged >= self.progress_interval_seconds:
                    logged = time.monotonic()
                    self._log_progress("so far")
        except Exception as error:
            if isinstance(error, NotDurableError) and error.report is not None:
                self._count(error.report)  # published, though not confirmed
            raise self._stopped(error) from error
        self._log_progress("done")
        return self._report()

    def _count(self, batch: PublishReport) -> None:
        self.published += batch.accepted
        self.duplicates += batch.duplicates
        self.batches += 1
        if batch.accepted:
            accepted = [position for position, owner in enumerate(batch.duplicate_of) if owner is None]
            self.first_id = self.first_id or batch.ids[accepted[0]]
            self.last_id = batch.ids[accepted[-1]]

    def _log_progress(self, when: str) -> None:
        seconds = time.monotonic() - self._started
        self.log.info(
            "queue %r, %s: %d published, %d duplicates refused, %d dropped, in %d batches and %.1f s",
            *(self.queue.name, when, self.published, self.duplicates, self.reader.dropped, self.batches, seconds),
        )

    def _report(self) -> dict[str, Any]:
        return {
            "queue": self.queue.name,
            "published": self.published,
            "duplicates": self.duplicates,
            "dropped": self.reader.dropped,
            "batches": self.batches,
            "seconds": round(time.monotonic() - self._started, 3),
            "first_message_id": self.first_id,
            "last_message_id": self.last_id,
        }

    def _stopped(self, error: Exception) -> PublishStoppedError:
        parts = [self.reader.explain(error)]
        if self.batches:
            last = "up to it" if isinstance(error, NotDurableError) else "before it"
            parts.append(
                f"the {self.batches} batches {last} stay published: {self.published} messages, and "
                f"{self.duplicates} refused as duplicates"
            )
        else:
            parts.append("no batch was published before it")
        if isinstance(error, PublishUnknownError):
            parts.append("it is not known whether the current batch was published")
        is_permanent = self.reader.is_permanent(error)
        again = "running the task again once this is put right" if is_permanent else "a retry"
        if self.window_seconds is not None:
            parts.append(
                f"{again} is safe: messages that were published are refused as duplicates for "
                f"{self.window_seconds:g} s after their publish"
            )
        elif self.batches or isinstance(error, PublishUnknownError):
            parts.append(f"without a deduplication_key, {again} publishes those messages again")
        return PublishStoppedError(
            "; ".join(parts),
            published=self.published,
            duplicates=self.duplicates,
            batches=self.batches,
            is_permanent=is_permanent,
        )


def _reason(error: BaseException) -> str:
    if isinstance(error, PublishUnknownError) and error.__cause__ is not None:
        return _reason(error.__cause__)  # whose own text is about repeating calls by hand; here the task is retried
    if isinstance(error, (RedisMessageQueueError, redis.RedisError, TypeError, ValueError)):
        return str(error)
    return type(error).__name__
