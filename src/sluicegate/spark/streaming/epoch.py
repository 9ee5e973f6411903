"""Let one streaming query at a time claim for a consumer: the query that was started last."""

from __future__ import annotations

import logging

from sluicegate._session import new_id
from sluicegate.consumer import QueueConsumer
from sluicegate.errors import ConfigurationError
from sluicegate.lease import Lease
from sluicegate.spark import _access
from sluicegate.spark._place import place_of
from sluicegate.spark.transitions import ConsumerLease, Span, acquire_consumer_call

__all__ = ["NEW", "ConsumerReader", "adopt", "lease_id", "release_older"]

NEW = 0
_log = logging.getLogger("sluicegate")


class ConsumerReader:
    """Acquires a consumer for one streaming query and checks that no other query has acquired it since."""

    def __init__(self, queue: QueueConsumer, consumer: str) -> None:
        self._queue = queue
        self._consumer = consumer
        self._nonce = new_id()

    def acquire(self, epoch: int) -> ConsumerLease:
        """Acquire the consumer in an epoch, or in a `NEW` one, which fences every query of an older epoch.

        Raises:
            ConfigurationError: another query has acquired the consumer in a newer epoch.
        """
        return self._call(epoch, -1, -1)

    def confirm(self, epoch: int, *, floor: int, top: int) -> None:
        """Confirm the consumer before leases up to `top` are claimed; leases up to `floor` are settled.

        Raises:
            ConfigurationError: another query has acquired the consumer since.
        """
        self._call(epoch, floor, top)

    def _call(self, epoch: int, floor: int, top: int) -> ConsumerLease:
        call = acquire_consumer_call(self._queue.session.keys, self._consumer, self._nonce, epoch, floor=floor, top=top)
        consumer_lease = _access.run_call(self._queue, call)
        if not consumer_lease.acquired:
            raise ConfigurationError(
                f"another streaming query was started with consumer {self._consumer!r} of {place_of(self._queue)}, "
                f"and this one must stop (its epoch is {epoch}, the other's {consumer_lease.epoch}): give every query "
                "a consumer of its own, and start a query with a new checkpoint only if the query with the old one is "
                "stopped for good"
            )
        return consumer_lease


def lease_id(consumer: str, epoch: int, number: int) -> str:
    """Return the id of one lease of a consumer."""
    return f"{consumer}/{epoch}/{number}"


def adopt(queue: QueueConsumer, name: str, lease_seconds: float) -> Lease | None:
    """Take an open lease over; return None if no lease of this name is open."""
    if _access.read_lease(queue, name).state != "open":
        return None
    lease = queue.claim(1, lease_id=name, lease_seconds=lease_seconds, take_over_after_seconds=0, heartbeat=False)
    if not lease:
        return None
    if lease.takeovers == 0:  # it expired after it was read, and the claim opened it again
        lease.release()
        return None
    return lease


def release_older(queue: QueueConsumer, consumer: str, spans: tuple[Span, ...]) -> int:
    """Release the leases of queries of older epochs, and return the number of their messages."""
    released = 0
    for span in spans:
        for number in range(span.floor + 1, span.top + 1):
            lease = adopt(queue, lease_id(consumer, span.epoch, number), 60)
            if lease is not None:
                released += len(lease)
                lease.release()
    if released:
        _log.warning(
            "consumer %r of %s: %d messages that an earlier query had claimed are delivered again",
            consumer,
            place_of(queue),
            released,
        )
    return released
