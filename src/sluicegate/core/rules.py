"""A queue's scripts need some of its options: the rules."""

from __future__ import annotations

from dataclasses import dataclass

from sluicegate.core.bounds import MAX_CLAIM_BYTES, MAX_RECORDED_CLAIM_BYTES

__all__ = ["QueueRules"]


@dataclass(frozen=True, slots=True)
class QueueRules:
    """These rules of a queue are arguments of its scripts.

    Attributes:
        max_delivery_count: deliveries after which a message is buried, 0 for no cap.
        max_lease_seconds: longest life of a lease, however often it is extended; 0 for no bound.
        max_dead_length: dead letters kept, the oldest dropped first; 0 for all.
        completed_cap: records of acked messages kept; None for no history, 0 for all.
        failed_cap: records of failed attempts kept; None for no history, 0 for all.
        strict: whether a foreign value stays where it is and is reported, instead of being buried.
        stale_seconds: how long a consumer of another library may be silent about an entry of a group before the group
            takes it over; 0 for ever.
    """

    max_delivery_count: int = 0
    max_lease_seconds: float = 0
    max_dead_length: int = 0
    completed_cap: int | None = None
    failed_cap: int | None = None
    strict: bool = False
    stale_seconds: float = 0

    @property
    def claim_bytes(self) -> int:
        """Return the bytes of stored messages after which a claim takes no more."""
        return MAX_CLAIM_BYTES if self.completed_cap is None else MAX_RECORDED_CLAIM_BYTES
