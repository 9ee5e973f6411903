"""The rules of a queue that its scripts need."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["QueueRules"]


@dataclass(frozen=True, slots=True)
class QueueRules:
    """The rules of a queue that its scripts need.

    Attributes:
        max_delivery_count: deliveries after which a message is buried, 0 for no cap.
        max_lease_seconds: longest life of a lease, however often it is extended; 0 for no bound.
        max_dead_length: dead letters kept, the oldest dropped first; 0 for all.
        completed_cap: records of acked messages kept; None for no history, 0 for all.
        failed_cap: records of failed attempts kept; None for no history, 0 for all.
        strict: whether a foreign value stays where it is and is reported, instead of being buried.
    """

    max_delivery_count: int = 0
    max_lease_seconds: float = 0
    max_dead_length: int = 0
    completed_cap: int | None = None
    failed_cap: int | None = None
    strict: bool = False

    @property
    def history_caps(self) -> tuple[int, int]:
        """The caps of the completed and the failed history as scripts read them: -1 stands for no history."""
        completed, failed = self.completed_cap, self.failed_cap
        return -1 if completed is None else completed, -1 if failed is None else failed
