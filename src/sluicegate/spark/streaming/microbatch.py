"""Hold the values of a micro-batch: its offsets, and its capacity."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from sluicegate.core.bounds import MAX_CLAIM_LIMIT
from sluicegate.errors import ConfigurationError
from sluicegate.lease import Lease

__all__ = ["Capacity", "Offset", "Pace"]

_MAX_SAVED_SECONDS = 60.0
_FIRST_CLAIM = 100  # messages, while their size is unknown


@dataclass(frozen=True, slots=True)
class Offset:
    """Says how far a consumer has claimed.

    Attributes:
        consumer: the name of the consumer.
        epoch: the epoch of the query; 0 before the first claim.
        number: leases claimed in this epoch.
        turn: counts micro-batches that are planned only so that Spark commits the one before.
    """

    consumer: str
    epoch: int = 0
    number: int = 0
    turn: int = 0

    def to_dict(self) -> dict[str, Any]:
        """Return the form that Spark stores; Spark compares texts, so the order of the keys is fixed."""
        values: dict[str, Any] = {"c": self.consumer, "e": self.epoch, "n": self.number}
        return values | {"t": self.turn} if self.turn else values

    @classmethod
    def from_dict(cls, values: Mapping[str, Any], consumer: str) -> Offset:
        """Read an offset that Spark stored.

        Raises:
            ConfigurationError: the offset is of another consumer.
        """
        if values.get("c") != consumer:
            raise ConfigurationError(
                f"the checkpoint is of consumer {values.get('c')!r}, and the option consumer says {consumer!r}; set it "
                "back, or start with a new checkpoint"
            )
        return cls(consumer, int(values["e"]), int(values["n"]), int(values.get("t", 0)))


class Capacity:
    """Counts the messages and bytes that a micro-batch may still claim.

    Args:
        messages: the largest number of messages, None for any.
        size: the largest number of bytes, approximately; None for any.
        average: the average bytes of a message so far; 0 if unknown.
        claim_bytes: bytes after which a claim takes no more messages.
    """

    def __init__(self, messages: int | None, size: int | None, average: float, claim_bytes: int) -> None:
        self.claim_bytes = claim_bytes
        self.messages = math.inf if messages is None else messages
        self.bytes = math.inf if size is None else size
        self.average = average

    @property
    def next_limit(self) -> int:
        """Return the limit of the next claim; 0 for no claim."""
        if self.messages <= 0 or self.bytes <= 0:
            return 0
        fitting = self.bytes / self.average if self.average else self.bytes if self.bytes == math.inf else _FIRST_CLAIM
        return int(max(1, min(self.messages, fitting, MAX_CLAIM_LIMIT)))

    def use(self, lease: Lease) -> bool:
        """Subtract a claimed lease; return whether the queue may hold more messages."""
        stored = lease.leased.stored
        limit, size = self.next_limit, stored.size
        self.average = max(self.average, size / len(lease))
        self.messages, self.bytes = self.messages - len(lease), self.bytes - size
        # Messages that failed before come in smaller leases, and the bytes of a lease are bounded.
        return len(lease) == limit or stored.delivery_count(0) > 1 or size >= self.claim_bytes


class Pace:
    """Limits how many messages a query claims per second.

    The time since the last trigger counts, up to a minute, so that a query with a trigger every ten seconds may claim
    ten seconds' worth. An idle query that keeps asking saves up no more than a second's worth.

    Args:
        per_second: the largest number of messages per second; None for any.
        clock: seconds, monotonic.
    """

    def __init__(self, per_second: float | None, clock: Callable[[], float] = time.monotonic) -> None:
        self._rate = per_second
        self._clock = clock
        self._asked_at: float | None = None
        self._available = 0.0

    def allowance(self) -> int | None:
        """Return how many messages may be claimed now; None for any number."""
        if self._rate is None:
            return None
        now = self._clock()
        passed = 0.0 if self._asked_at is None else min(now - self._asked_at, _MAX_SAVED_SECONDS)
        most = max(1.0, self._rate * max(1.0, passed))
        self._available = most if self._asked_at is None else min(self._available + self._rate * passed, most)
        self._asked_at = now
        return max(0, int(self._available))

    def use(self, messages: int) -> None:
        """Subtract messages that were claimed."""
        self._available -= messages

    def seconds_to_next(self) -> float:
        """Return when the next message may be claimed, at the latest."""
        return 0.0 if self._rate is None else max(0.0, (1.0 - self._available) / self._rate)
