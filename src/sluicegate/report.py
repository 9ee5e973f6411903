"""A queue returns these reports: outcomes of a publish, and counts by state."""

from __future__ import annotations

from dataclasses import dataclass, field

from sluicegate.core.transitions.depth import Depth
from sluicegate.core.transitions.publish import Published
from sluicegate.core.transitions.redrive import RedriveReport
from sluicegate.core.transitions.repair import RepairReport
from sluicegate.core.transitions.stats import QueueStats

__all__ = ["Depth", "PublishReport", "QueueStats", "RedriveReport", "RepairReport"]


@dataclass(slots=True)
class PublishReport:
    """A publish report lists the outcomes of a publish by position.

    Attributes:
        accepted: number of published messages.
        duplicates: number of messages whose deduplication key was held.
        ids: the id of each message; a refused message never entered the queue under its id.
        duplicate_of: per message, the id of the message that holds its key; None if it was accepted or refused.
        refused: number of messages for which `max_pending_length` left no room; always 0 without `partial=True`.
        refused_positions: positions of the refused messages.
        dropped: number of waiting messages that `pending_overload_policy="drop_oldest"` dropped to make room.
        size_bytes: encoded size of the messages with their headers and keys, duplicates and refused ones included.
    """

    accepted: int = 0
    duplicates: int = 0
    ids: list[str] = field(default_factory=list)
    duplicate_of: list[str | None] = field(default_factory=list)
    refused: int = 0
    refused_positions: list[int] = field(default_factory=list)
    dropped: int = 0
    size_bytes: int = 0

    @classmethod
    def of(cls, published: Published, ids: list[str], size_bytes: int) -> PublishReport:
        """Build a report from a decoded reply."""
        owners: list[str | None] = [None] * len(ids)
        for position, owner in published.duplicates.items():
            owners[position] = owner
        refused = list(published.refused)
        duplicates = len(published.duplicates)
        return cls(published.accepted, duplicates, ids, owners, len(refused), refused, published.dropped, size_bytes)

    def add(self, other: PublishReport) -> None:
        """Append the outcomes of the next chunk, whose positions follow those of this report."""
        self.refused_positions += [len(self.ids) + position for position in other.refused_positions]
        self.refused += other.refused
        self.dropped += other.dropped
        self.size_bytes += other.size_bytes
        self.accepted += other.accepted
        self.duplicates += other.duplicates
        self.ids += other.ids
        self.duplicate_of += other.duplicate_of

    def __repr__(self) -> str:
        more = "".join(f", {name}={getattr(self, name)}" for name in ("refused", "dropped") if getattr(self, name))
        return f"PublishReport(accepted={self.accepted}, duplicates={self.duplicates}{more})"
