"""Publishes messages that are encoded already, with markers of their own, through the machinery of the queue."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import TypeVar

from sluicegate._session import new_id
from sluicegate.core.call import Call
from sluicegate.core.keys import QueueKeys
from sluicegate.core.transitions.publish import Batch
from sluicegate.errors import PayloadTooLargeError
from sluicegate.publisher import Publisher
from sluicegate.queue import RedisMessageQueue
from sluicegate.report import PublishReport
from sluicegate.spark import _access

__all__ = ["Sender"]

T = TypeVar("T")


class Sender:
    """Publishes for one task or one commit; reaches below the queue's methods, as `_access` does.

    Args:
        queue: where to; closed with `close`.
        bound: markers live as the queue's deduplication policy says; False: for the window in any case.
    """

    def __init__(self, queue: RedisMessageQueue, *, bound: bool) -> None:
        self._queue = queue
        publishing = queue.session.publishing
        self._publishing = publishing if bound else replace(publishing, policy="window")
        self._guards = publishing.limits

    @property
    def keys(self) -> QueueKeys:
        """Names of the queue's keys."""
        return self._queue.session.keys

    @property
    def max_pending_length(self) -> int:
        """Messages that may wait in the queue, 0 for any number."""
        return self._publishing.max_pending_length

    def check(self, payloads: Iterable[bytes], *, first: int) -> None:
        """Hold payloads against the queue's limits; the first of them is at this position among the rows of the task.

        Raises:
            PayloadTooLargeError, PayloadTooDeepError: one is beyond them.
        """
        if self._guards:
            for position, payload in enumerate(payloads, first):
                try:
                    self._guards.check_stored(payload, payload)
                except PayloadTooLargeError as error:
                    error.position = position
                    raise

    def batch(
        self,
        parts: list[bytes],
        markers: list[bytes],
        *,
        batch_id: bytes | None = None,
        receipt_seconds: float = 0,
        first: int = 0,
    ) -> Batch:
        """One call's worth of messages; see `Publishing.batch_of_parts`."""
        return self._publishing.batch_of_parts(
            batch_id or new_id(), parts, markers, receipt_seconds=receipt_seconds, first=first
        )

    def send(self, batches: Iterable[Batch]) -> Iterator[PublishReport]:
        """Publish one call after the other, the next prepared meanwhile; raises as `publish_many`."""
        return Publisher(self._queue.session).publish_batches(batch for batch in batches)

    def run(self, call: Call[T]) -> T:
        """Execute a prepared call."""
        return _access.run_call(self._queue, call)

    def close(self) -> None:
        """Close the connections."""
        self._queue.close()
