"""Publishing a stream of messages with counts, progress and errors that say how far it got."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

import redis

from sluicegate import PublishReport, RedisMessageQueue
from sluicegate.core.deduplication import KeySource, compile_key_function
from sluicegate.core.publishing import encode_payload
from sluicegate.errors import PayloadTooLargeError, PublishUnknownError, RedisMessageQueueError

__all__ = ["Log", "PublishStoppedError", "Publisher", "Reader"]


class Log(Protocol):
    """The part of an operator's logger that is needed here."""

    def info(self, event: str, *args: Any) -> Any: ...


class PublishStoppedError(RedisMessageQueueError):
    """
    A publish stopped before its end; the batches before it stay published.

    :ivar published: messages published before it stopped.
    :ivar duplicates: messages refused as duplicates before it stopped.
    :ivar batches: calls that took effect.
    """

    def __init__(self, message: str, *, published: int, duplicates: int, batches: int) -> None:
        super().__init__(message)
        self.published = published
        self.duplicates = duplicates
        self.batches = batches


@dataclass(slots=True)
class Reader:
    """
    Reads numbered messages, transforms them, and remembers where those of the current batch stand, so that an error can
    say where it is.

    :param source: numbers and messages.
    :param place: from a number to words such as ``orders.csv, line 7``.
    :param transform: from a message to what is published, None to drop it.
    :param remembered: how many messages back an error may be, that is the batch size.
    """

    source: Iterable[tuple[int, Any]]
    place: Callable[[int], str]
    transform: Callable[[Any], Any] | None
    remembered: int
    dropped: int = 0
    failure: str | None = None
    passed_on: int = 0
    last: Any = None
    _numbers: deque[int] = field(init=False)

    def __post_init__(self) -> None:
        self._numbers = deque(maxlen=self.remembered + 1)  # a batch that its bytes end is one message behind

    def place_of(self, position: int) -> str | None:
        """Where the message stands that was passed on as number ``position``, from 0; None when it is too long ago."""
        back = self.passed_on - position
        return self.place(self._numbers[-back]) if 0 < back <= len(self._numbers) else None

    def __iter__(self) -> Iterator[Any]:
        number = 0
        try:
            for number, message in self.source:
                payload = message if self.transform is None else self._transformed(number, message)
                if payload is None:
                    self.dropped += 1
                    continue
                self._numbers.append(number)
                self.passed_on += 1
                self.last = payload
                yield payload
        except Exception as error:
            if self.failure is None:
                # What a function of the user raises may quote a payload, so only its type is repeated.
                told = str(error) if isinstance(error, (RedisMessageQueueError, OSError)) else type(error).__name__
                after = f" after {self.place(number)}" if number else ""
                self.failure = told if isinstance(error, RedisMessageQueueError) else f"reading stopped{after}: {told}"
            raise

    def _transformed(self, number: int, message: Any) -> Any:
        assert self.transform is not None
        try:
            return self.transform(message)
        except Exception as error:
            self.failure = f"{self.place(number)}: transform raised {type(error).__name__}"
            raise


@dataclass(slots=True)
class Publisher:
    """
    Publishes what a reader yields and counts it. One batch is in memory at a time.

    :param queue: where to.
    :param reader: what.
    :param deduplication_key: the queue's, or None.
    :param window_seconds: how long the queue refuses duplicates.
    :param log: for progress: counts only.
    :param progress_interval_seconds: between two lines of progress.
    """

    queue: RedisMessageQueue
    reader: Reader
    deduplication_key: KeySource | None
    window_seconds: float
    log: Log
    progress_interval_seconds: float
    published: int = 0
    duplicates: int = 0
    batches: int = 0
    first_id: str | None = None
    last_id: str | None = None
    _started: float = field(default_factory=time.monotonic)

    def run(self, *, batch_size: int, headers: Mapping[str, str] | None) -> dict[str, Any]:
        """
        Publish everything and return the report.

        :raises PublishStoppedError: reading or publishing failed; says where, why, and what was published before.
        """
        told = self._started
        try:
            for batch in self.queue.publish_chunks(self.reader, batch_size=batch_size, headers=headers):
                self._count(batch)
                if time.monotonic() - told >= self.progress_interval_seconds:
                    told = time.monotonic()
                    self._tell("so far")
        except Exception as error:
            raise self._stopped(error) from error
        self._tell("done")
        return self._report()

    def _count(self, batch: PublishReport) -> None:
        self.published += batch.accepted
        self.duplicates += batch.duplicates
        self.batches += 1
        if batch.accepted:
            accepted = [position for position, owner in enumerate(batch.duplicate_of) if owner is None]
            self.first_id = self.first_id or batch.ids[accepted[0]]
            self.last_id = batch.ids[accepted[-1]]

    def _tell(self, when: str) -> None:
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
        parts = [self.reader.failure or self._culprit(error) or _told(error)]
        if self.batches:
            parts.append(
                f"the {self.batches} batches before it stay published: {self.published} messages, and "
                f"{self.duplicates} refused as duplicates"
            )
        else:
            parts.append("no batch was published before it")
        if isinstance(error, PublishUnknownError):
            parts.append("whether the batch in hand was published is not known")
        if self.deduplication_key is None:
            parts.append("without a deduplication_key, trying again publishes again what was published")
        else:
            parts.append(
                "trying again is safe: what was published is refused as a duplicate for "
                f"{self.window_seconds:g} s after its publish"
            )
        return PublishStoppedError(
            "; ".join(parts), published=self.published, duplicates=self.duplicates, batches=self.batches
        )

    def _culprit(self, error: Exception) -> str | None:
        """The message that cannot be published, and why; None when it is not about one."""
        reader, last = self.reader, self.reader.passed_on - 1  # each is checked before the next is read
        if isinstance(error, PayloadTooLargeError) and error.position is not None:
            place = reader.place_of(error.position)
            return f"{place}: {error}" if place else None
        place = reader.place_of(last)
        if place is None:
            return None
        try:
            encode_payload(reader.last)
        except (TypeError, ValueError) as refusal:
            return f"{place}: {refusal}"
        source = self.deduplication_key
        if source is None:
            return None
        try:
            compile_key_function(source)(reader.last)
        except Exception as refusal:  # noqa: BLE001, a function of the user raises what it likes
            return f"{place}: {type(refusal).__name__ if callable(source) else refusal}"
        return None


def _told(error: BaseException) -> str:
    if isinstance(error, PublishUnknownError) and error.__cause__ is not None:
        return _told(error.__cause__)  # its own text speaks of repeating calls by hand, which a retry does better
    if isinstance(error, (RedisMessageQueueError, redis.RedisError, TypeError, ValueError)):
        return str(error)
    return type(error).__name__
