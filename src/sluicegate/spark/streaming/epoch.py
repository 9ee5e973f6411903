"""Which streaming query may claim for a consumer: one at a time, the one that was started last."""

from __future__ import annotations

import logging

from sluicegate._session import new_id
from sluicegate.core.keys import QueueKeys
from sluicegate.errors import ConfigurationError
from sluicegate.lease import Lease
from sluicegate.queue import RedisMessageQueue
from sluicegate.spark import _access
from sluicegate.spark.transitions import ConsumerLease, Span, acquire_consumer_call

__all__ = ["NEW", "Reader", "adopt", "lease_id", "release_older"]

NEW = 0
_log = logging.getLogger("sluicegate")


class Reader:
    """One reader of a consumer, and its seat."""

    def __init__(self, queue: RedisMessageQueue, consumer: str) -> None:
        self._queue = queue
        self._consumer = consumer
        self._keys = QueueKeys(queue.name)
        self._nonce = new_id()

    def acquire(self, epoch: int) -> ConsumerLease:
        """Be seated in an epoch, or in a `NEW` one, which fences every query of an older one.

        Raises:
            ConfigurationError: a newer epoch was given.
        """
        return self._ask(epoch, -1, -1)

    def keep(self, epoch: int, *, floor: int, top: int) -> None:
        """Make sure of the seat before leases up to `top` are claimed; those up to `floor` are settled.

        Raises:
            ConfigurationError: another query was seated since.
        """
        self._ask(epoch, floor, top)

    def _ask(self, epoch: int, floor: int, top: int) -> ConsumerLease:
        call = acquire_consumer_call(self._keys, self._consumer, self._nonce, epoch, floor=floor, top=top)
        seat = _access.run(self._queue, call)
        if not seat.acquired:
            raise ConfigurationError(
                f"another streaming query was started with consumer {self._consumer!r} of queue {self._queue.name!r}, "
                f"and this one must stop (its epoch is {epoch}, the other's {seat.epoch}): give every query a consumer "
                "of its own, and start a query with a new checkpoint only where the one with the old is given up"
            )
        return seat


def lease_id(consumer: str, epoch: int, number: int) -> str:
    """The name of one lease of a consumer."""
    return f"{consumer}/{epoch}/{number}"


def adopt(queue: RedisMessageQueue, name: str, lease_seconds: float) -> Lease | None:
    """Take an open lease over; None where there is none under this name."""
    if _access.look(queue, name).state != "open":
        return None
    lease = queue.claim(1, lease_id=name, lease_seconds=lease_seconds, take_over_after_seconds=0, heartbeat=False)
    if not lease:
        return None
    if lease.takeovers == 0:  # it ran out since it was looked at, and the claim opened it anew
        lease.release()
        return None
    return lease


def release_older(queue: RedisMessageQueue, consumer: str, spans: tuple[Span, ...]) -> int:
    """Release what queries of older epochs hold, and return how many messages that were."""
    released = 0
    for span in spans:
        for number in range(span.floor + 1, span.top + 1):
            lease = adopt(queue, lease_id(consumer, span.epoch, number), 60)
            if lease is not None:
                released += len(lease)
                lease.release()
    if released:
        _log.warning(
            "consumer %r of queue %r: %d messages that an earlier query had claimed are delivered again",
            consumer,
            queue.name,
            released,
        )
    return released
