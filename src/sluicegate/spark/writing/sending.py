"""Publish rows that are encoded already and have their own deduplication keys."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import TypeVar

from sluicegate._session import new_id
from sluicegate.core.call import Call
from sluicegate.core.keys import QueueKeys
from sluicegate.core.transitions.publish import Batch
from sluicegate.errors import RedisMessageQueueError
from sluicegate.publisher import Publisher
from sluicegate.report import PublishReport
from sluicegate.spark import _access
from sluicegate.spark._place import PublishTarget
from sluicegate.spark.writing.rows import Rows
from sluicegate.streams import RedisStreamQueue

__all__ = ["Sender"]

T = TypeVar("T")


class Sender:
    """Publishes prepared batches for one task or one commit, through the session of the queue.

    Args:
        queue: the queue or stream to publish to; `close` closes it.
        bound: whether markers live as the queue's deduplication policy says; False: always for the window.
    """

    def __init__(self, queue: PublishTarget, *, bound: bool) -> None:
        self._queue = queue
        publishing = queue.session.publishing
        self._publishing = publishing if bound else replace(publishing, policy="window")
        self._limits = publishing.limits

    @property
    def keys(self) -> QueueKeys:
        """Return the keys of the queue."""
        return self._queue.session.keys

    @property
    def max_pending_length(self) -> int:
        """Return the number of messages that may wait in the queue, 0 for any number."""
        return self._publishing.max_pending_length

    def check(self, rows: Rows, *, first: int) -> None:
        """Check rows against the queue's limits; `first` is the position of the first one among the task's rows.

        Raises:
            PayloadTooLargeError, PayloadTooDeepError: a payload exceeds a limit; `position` says which.
        """
        if self._limits:
            for position, payload in enumerate(rows.payloads, first):
                try:
                    self._limits.check_stored(payload, payload)
                except RedisMessageQueueError as error:
                    error.locate(position=position)
                    raise

    def batch(
        self,
        parts: list[bytes],
        keys: list[bytes],
        *,
        batch_id: bytes | None = None,
        receipt_seconds: float = 0,
        first: int = 0,
    ) -> Batch:
        """Make the batch of one call; see `Publishing.batch_of_parts`."""
        return self._publishing.batch_of_parts(
            batch_id or new_id(), parts, keys, receipt_seconds=receipt_seconds, first=first
        )

    def send(self, batches: Iterable[Batch]) -> Iterator[PublishReport]:
        """Publish one batch after the other and prepare the next meanwhile; raise as `publish_many`."""
        queue = self._queue
        publisher = queue.publisher if isinstance(queue, RedisStreamQueue) else Publisher(queue.session)
        return publisher.publish_batches((batch for batch in batches), holds=True)

    def run(self, call: Call[T]) -> T:
        """Execute a prepared call."""
        return _access.run_call(self._queue, call)

    def close(self) -> None:
        """Close the connections."""
        self._queue.close()
