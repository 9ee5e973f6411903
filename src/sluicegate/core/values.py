"""What goes into a prepared call."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from sluicegate.core.durability import MEMORY, Durability

__all__ = ["Batch", "ClaimRequest", "Overload", "QueueRules", "SettleRequest", "Verb", "VerdictGroup"]

Verb = Literal["ack", "discard", "nack", "release", "bury"]
Overload = Literal["raise", "partial", "drop_oldest"]


@dataclass(frozen=True, slots=True)
class QueueRules:
    """The rules of a queue that its scripts need.

    Attributes:
        max_delivery_count: deliveries after which a message is buried, 0 for no cap.
        max_lease_seconds: longest life of a lease, however often it is extended; 0 for no bound.
        max_dead_length: dead letters kept, the oldest dropped first; 0 for all.
        completed_cap: records of acked messages kept; None for no history, 0 for all.
        failed_cap: records of failed attempts kept; None for no history, 0 for all.
        strict: a foreign value stays where it is and is told, instead of being buried.
    """

    max_delivery_count: int = 0
    max_lease_seconds: float = 0
    max_dead_length: int = 0
    completed_cap: int | None = None
    failed_cap: int | None = None
    strict: bool = False


@dataclass(frozen=True, slots=True)
class Batch:
    """Messages that are published by one call; message i has the id `<batch id>-<i>`.

    Attributes:
        id: the batch.
        parts: the client's part of each entry, from the first separator on.
        markers: the marker key of each message, or nothing for a batch without deduplication.
        window_seconds: life of a marker.
        receipt_seconds: life of the receipt, 0 for none.
        oldest_seconds: the age up to which a repeat is known to be harmless.
        kind: first byte of the entries: `1`, or `2` when a marker is freed as its message ends.
        delay_seconds: from the time at which the server stores the messages until they fall due.
        due_ms: when they fall due, in ms since the epoch; 0 to go by the delay.
        max_pending_length: messages that may wait in the queue, these included; 0 for any number.
        overload: what happens beyond that: the batch is refused whole, or in part, or the oldest messages are dropped.
        durability: what the publish waits for.
        first: position of the first message among all that its caller publishes.
    """

    id: bytes
    parts: list[bytes] = field(repr=False)
    markers: list[bytes] = field(default_factory=list, repr=False)
    window_seconds: float = 0
    receipt_seconds: float = 0
    oldest_seconds: float = 0
    kind: bytes = b"1"
    delay_seconds: float = 0
    due_ms: int = 0
    max_pending_length: int = 0
    overload: Overload = "raise"
    durability: Durability = MEMORY
    first: int = 0

    def message_ids(self) -> list[str]:
        """The ids of the messages by position."""
        prefix = self.id.decode()
        return [f"{prefix}-{position}" for position in range(len(self.parts))]


@dataclass(frozen=True, slots=True)
class ClaimRequest:
    """What a claim asks for; see `RedisMessageQueue.claim`.

    Attributes:
        name: the lease's id as it stands in keys.
        nonce: of this claim; its repeats carry the same.
        limit: most messages.
        lease_seconds: life of the lease without a heartbeat.
        keep_seconds: life of the record of its end.
        empty_seconds: how long an empty answer is remembered, 0 for not.
        run: key of what a run gave back itself and is not to take again; empty for none.
    """

    name: bytes
    nonce: bytes
    limit: int
    lease_seconds: float
    keep_seconds: float
    empty_seconds: float = 0
    run: bytes = b""


@dataclass(frozen=True, slots=True)
class VerdictGroup:
    """One verdict for some slots.

    Attributes:
        verb: ack, discard, nack, release or bury.
        slots: as ranges, such as "1-3,5".
        delay_seconds: how long a nack stays out of reach.
        named: given to these messages by name, not to a whole batch; then a nack may bury for the count at once.
        why: "reason US error type US error text".
    """

    verb: Verb
    slots: str
    delay_seconds: float = 0
    named: bool = True
    why: bytes = field(default=b"\x1f\x1f", repr=False)


@dataclass(frozen=True, slots=True)
class SettleRequest:
    """Verdicts for one lease.

    Attributes:
        name: the lease's id as it stands in keys.
        token: of its holder.
        keep_seconds: life of the record of its end.
        recorded: False for a one-message lease with a library-made id, whose ack leaves no record.
        groups: the verdicts.
        bound: slot and marker key, ascending, of the messages among them whose deduplication marker ends with them.
    """

    name: bytes
    token: bytes
    keep_seconds: float
    recorded: bool
    groups: tuple[VerdictGroup, ...]
    bound: tuple[tuple[int, bytes], ...] = ()
