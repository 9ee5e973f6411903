"""Publish a stream of messages with counts, progress, and errors that say where it stopped."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from sluicegate.errors import ConfigurationError, NotDurableError, PublishUnknownError, RedisMessageQueueError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime

    from sluicegate.bulk.reader import Reader
    from sluicegate.core.durability import DurabilityOption
    from sluicegate.place import Place
    from sluicegate.queue import RedisMessageQueue
    from sluicegate.report import PublishReport
    from sluicegate.streams import RedisStreamQueue

__all__ = ["Log", "PublishStoppedError", "Publisher"]


class Log(Protocol):
    """The part of an adapter's logger that a publisher uses."""

    def info(self, event: str, *args: Any) -> Any: ...


class PublishStoppedError(RedisMessageQueueError):
    """A publish stopped before its end; the batches before it stay published.

    Attributes:
        published: messages published before it stopped.
        duplicates: messages refused as duplicates before it stopped.
        batches: calls that took effect.
        is_permanent: whether another try of the same input would stop at the same place.
    """

    def __init__(self, message: str, *, published: int, duplicates: int, batches: int, is_permanent: bool) -> None:
        super().__init__(message)
        self.is_permanent = is_permanent
        self.published = published
        self.duplicates = duplicates
        self.batches = batches


@dataclass(slots=True)
class Publisher:
    """Publishes the messages of a reader and counts them. One batch is in memory at a time.

    Attributes:
        queue: the queue or stream to publish to.
        reader: the messages.
        log: receives the progress, as counts only.
        progress_interval_seconds: time between two lines of progress.
        earlier: the report of the earlier parts of this publish, whose messages this part finds as duplicates.
        place: what is published to; None for a queue.
        batch_id: publish the messages as this batch, which a repeat rejoins; None for no batch.
    """

    queue: RedisMessageQueue | RedisStreamQueue
    reader: Reader
    log: Log
    progress_interval_seconds: float
    earlier: Mapping[str, Any] | None = None
    place: Place | None = None
    batch_id: str | None = None
    published: int = 0
    duplicates: int = 0
    batches: int = 0
    size_bytes: int = 0
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
        """Publish everything and return the report.

        Raises:
            PublishStoppedError: reading or publishing failed; says where, why, and what was published before.
            BaseException: what else stopped it, such as a timeout of the task, after the counts were logged.
        """
        logged = self._started
        try:
            for batch in self.queue.publish_chunks(
                self.reader.messages(self.queue.session.publishing),
                batch_size=batch_size,
                headers=headers,
                durability=durability,
                ahead=self.reader.is_at_hand,
                **self._of_queues(delay_seconds, due_at),
            ):
                self._count(batch)
                if time.monotonic() - logged >= self.progress_interval_seconds:
                    logged = time.monotonic()
                    self._log_progress("so far")
        except Exception as error:
            if isinstance(error, NotDurableError) and error.report is not None:
                self._count(error.report)  # published, though not confirmed
            raise self._stopped(error) from error
        except BaseException:
            self._log_progress("stopped; the current batch may be published too")
            raise
        self._log_progress("done")
        return self.report()

    def _of_queues(self, delay_seconds: float, due_at: datetime | None) -> dict[str, Any]:
        """Return the arguments that a queue has and a stream does not.

        Raises:
            ConfigurationError: messages of a stream are to be delayed, or to be a batch.
        """
        if self.place is None or not self.place.stream:
            return {"delay_seconds": delay_seconds, "due_at": due_at, "batch_id": self.batch_id}
        if self.batch_id is not None:
            raise ConfigurationError(
                f"{self.place} has no batches, because each of its groups ends a message by itself; leave batch_id "
                "out, or publish to a queue"
            )
        if delay_seconds == 0 and due_at is None:
            return {}
        raise ConfigurationError(
            f"{self.place} delays no messages; leave delay_seconds and due_at out, or publish to a queue"
        )

    def report(self) -> dict[str, Any]:
        """Return the counts of this part and the earlier ones; a repeat that rejoins its batch counts all of it."""
        earlier = self.earlier if self.batch_id is None else None
        earlier = earlier or {"published": 0, "batches": 0, "seconds": 0.0, "first_message_id": None}
        return {
            "stream" if self.place and self.place.stream else "queue": self.queue.name,
            "published": earlier["published"] + self.published,
            "duplicates": max(0, self.duplicates - earlier["published"]),
            "dropped": self.reader.dropped,
            "batches": earlier["batches"] + self.batches,
            "seconds": round(earlier["seconds"] + time.monotonic() - self._started, 3),
            "first_message_id": earlier["first_message_id"] or self.first_id,
            "last_message_id": self.last_id or earlier.get("last_message_id"),
            **({} if self.batch_id is None else {"batch_id": self.batch_id}),
        }

    def advice(self, again: str, *, may_have_published: bool) -> str:
        """Say what publishing the same input again does with the messages that were published.

        Args:
            again: how that is called, such as `a retry`.
            may_have_published: whether there can be such messages.
        """
        config = self.queue.session.config
        if not may_have_published:
            return f"{again} is safe"
        if self.batch_id is not None:
            return f"{again} is safe: it rejoins batch {self.batch_id!r} and publishes what is missing"
        if config.get_deduplication_key is None:
            return f"without a deduplication_key, {again} publishes those messages again"
        if config.deduplication_policy == "until_acked":
            return (
                "messages that were published are refused as duplicates until they are acked; "
                f"{again} publishes those again that are acked by then"
            )
        return (
            f"{again} is safe: messages that were published are refused as duplicates for "
            f"{config.deduplication_window_seconds:g} s after their publish"
        )

    def _count(self, batch: PublishReport) -> None:
        self.published += batch.accepted
        self.duplicates += batch.duplicates
        self.batches += 1
        self.size_bytes += batch.size_bytes
        if batch.accepted:
            accepted = [position for position, owner in enumerate(batch.duplicate_of) if owner is None]
            self.first_id = self.first_id or batch.ids[accepted[0]]
            self.last_id = batch.ids[accepted[-1]]

    def _log_progress(self, when: str) -> None:
        seconds = time.monotonic() - self._started
        self.log.info(
            "%s, %s: %d published, %d duplicates refused, %d dropped, in %d batches and %.1f s",
            *(
                self.place or f"queue {self.queue.name!r}",
                when,
                self.published,
                self.duplicates,
                self.reader.dropped,
                self.batches,
                seconds,
            ),
        )

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
        is_unknown = isinstance(error, PublishUnknownError)
        if is_unknown:
            parts.append("it is not known whether the current batch was published")
        is_permanent = self.reader.is_permanent(error)
        again = "running it again once this is put right" if is_permanent else "a retry"
        parts.append(self.advice(again, may_have_published=bool(self.batches) or is_unknown))
        return PublishStoppedError(
            "; ".join(parts),
            published=self.published,
            duplicates=self.duplicates,
            batches=self.batches,
            is_permanent=is_permanent,
        )
