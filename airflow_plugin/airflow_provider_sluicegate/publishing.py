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
from sluicegate.errors import PublishUnknownError, RedisMessageQueueError

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
    Reads numbered messages, transforms them, and remembers the batch in hand, so that an error can say where it is.

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
    recent: deque[tuple[int, Any]] = field(init=False)

    def __post_init__(self) -> None:
        self.recent = deque(maxlen=self.remembered)

    def __iter__(self) -> Iterator[Any]:
        number = 0
        try:
            for number, message in self.source:
                payload = message if self.transform is None else self._transformed(number, message)
                if payload is None:
                    self.dropped += 1
                    continue
                self.recent.append((number, payload))
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
        parts = [self.reader.failure or self._culprit() or _told(error)]
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

    def _culprit(self) -> str | None:
        """The message of the batch in hand that cannot be published, and why; None when each of them can."""
        source = self.deduplication_key
        key = compile_key_function(source) if source is not None else None
        for number, payload in self.reader.recent:
            place = self.reader.place(number)
            try:
                encode_payload(payload)
            except (TypeError, ValueError) as error:
                return f"{place}: {error}"
            try:
                if key is not None:
                    key(payload)
            except Exception as error:  # noqa: BLE001, a function of the user raises what it likes
                return f"{place}: {type(error).__name__ if callable(source) else error}"
        return None


def _told(error: BaseException) -> str:
    if isinstance(error, PublishUnknownError) and error.__cause__ is not None:
        return _told(error.__cause__)  # its own text speaks of repeating calls by hand, which a retry does better
    if isinstance(error, (RedisMessageQueueError, redis.RedisError, TypeError, ValueError)):
        return str(error)
    return type(error).__name__
