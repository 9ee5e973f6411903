"""What a micro-batch is made of, as values: offsets, and room for messages."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sluicegate.errors import ConfigurationError
from sluicegate.lease import Lease

__all__ = ["Offset", "Room"]

MAX_CLAIM_LIMIT = 10_000  # messages of one lease
_MAX_CLAIM_BYTES = 32 * 1024 * 1024  # likewise
_FIRST_CLAIM = 100  # while nothing is known of their size


@dataclass(frozen=True, slots=True)
class Offset:
    """How far a consumer is.

    Attributes:
        consumer: its name.
        epoch: 0 before anything was claimed.
        number: leases claimed in this epoch.
        turn: counts micro-batches that are planned only to have the last one committed.
    """

    consumer: str
    epoch: int = 0
    number: int = 0
    turn: int = 0

    def to_dict(self) -> dict[str, Any]:
        """As Spark keeps it: it compares texts, so the order of the keys is fixed."""
        values: dict[str, Any] = {"c": self.consumer, "e": self.epoch, "n": self.number}
        return values | {"t": self.turn} if self.turn else values

    @classmethod
    def from_dict(cls, values: Mapping[str, Any], consumer: str) -> Offset:
        """What Spark hands back.

        Raises:
            ConfigurationError: it is another consumer's.
        """
        if values.get("c") != consumer:
            raise ConfigurationError(
                f"the checkpoint is of consumer {values.get('c')!r}, and the option consumer says {consumer!r}; set it "
                "back, or start with a new checkpoint"
            )
        return cls(consumer, int(values["e"]), int(values["n"]), int(values.get("t", 0)))


class Room:
    """What a micro-batch may still take.

    Args:
        messages: most of them, None for any number.
        size: bytes of them, about; None for any number.
        average: bytes of a message as known so far; 0 when nothing is.
    """

    def __init__(self, messages: int | None, size: int | None, average: float) -> None:
        self.messages = math.inf if messages is None else messages
        self.bytes = math.inf if size is None else size
        self.average = average

    @property
    def asked(self) -> int:
        """How many messages the next claim asks for; 0 for no claim."""
        if self.messages <= 0 or self.bytes <= 0:
            return 0
        fitting = self.bytes / self.average if self.average else self.bytes if self.bytes == math.inf else _FIRST_CLAIM
        return int(max(1, min(self.messages, fitting, MAX_CLAIM_LIMIT)))

    def take(self, lease: Lease) -> bool:
        """Note what a claim got; returns whether the queue may hold more."""
        asked, size = self.asked, sum(len(message.entry) for message in lease.messages)
        self.average = max(self.average, size / len(lease))
        self.messages, self.bytes = self.messages - len(lease), self.bytes - size
        # What failed before comes in smaller leases than asked for, and a lease takes so many bytes at most.
        return len(lease) == asked or lease.messages[0].delivery_count > 1 or size >= _MAX_CLAIM_BYTES
